#pragma once

namespace orrery {

/// Gives pages that the heap holds free back to the system: after something large was made and dropped, such as a
/// program that was compiled. Some milliseconds.
void give_back_free_pages();

}  // namespace orrery
