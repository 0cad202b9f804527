#pragma once
/// Exports a symbol from liborrery.so; symbols without it are hidden.
#define ORRERY_API __attribute__((visibility("default")))
