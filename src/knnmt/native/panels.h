// Panels of weights, of which some are worked on at once; see products.h.

#pragma once

#include <cstdint>
#include <type_traits>

namespace {

// `work` on the panels before `last`: `most` at once, for those fill the registers, and towards the end fewer, but rather
// twice two than three and one alone.
template <int most, typename Work>
void by_panels(int64_t panel, int64_t last, Work work) {
    for (; last - panel >= most && (most < 3 || last - panel != most + 1); panel += most)
        work(panel, std::integral_constant<int, most>());
    if constexpr (most > 1)
        if (panel < last) by_panels<most - 1>(panel, last, work);
}

}  // namespace
