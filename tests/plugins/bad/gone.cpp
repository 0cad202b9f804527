// A vendor library that is there at link time only.
extern "C" __attribute__((visibility("default"))) int orrery_test_gone() { return 1; }
