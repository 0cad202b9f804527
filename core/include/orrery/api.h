#pragma once
/// Marks what leaves liborrery.so; everything else is hidden.
#define ORRERY_API __attribute__((visibility("default")))
