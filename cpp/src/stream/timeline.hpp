// When each part of each tensor of one transfer moved: what PlaneSender and PlaneReceiver show as timeline(). Guarded
// by its owner's mutex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "lynx/metrics.hpp"
#include "lynx/slot_layout.hpp"

namespace lynx {

class Timeline {
   public:
    explicit Timeline(const SlotLayout& layout)
        : parts_(layout.parts()), times_(std::size_t{layout.tensors()} * layout.parts()) {
        for (std::uint32_t i = 0; i < times_.size(); ++i) {
            times_[i].tensor = i / parts_;
            times_[i].part = i % parts_;
        }
    }

    [[nodiscard]] PartTimes& at(std::uint32_t tensor, unsigned part) noexcept { return times_[tensor * parts_ + part]; }

    /// A chunk of it was posted, or arrived.
    void touch(std::uint32_t tensor, unsigned part, Clock::time_point now) noexcept {
        PartTimes& times = at(tensor, part);
        if (times.first == Clock::time_point{}) times.first = now;
        if (!times.complete) times.last = now;
    }

    /// Of the parts of which anything has moved.
    [[nodiscard]] std::vector<PartTimes> begun() const {
        std::vector<PartTimes> begun;
        std::ranges::copy_if(times_, std::back_inserter(begun),
                             [](const PartTimes& t) { return t.first != Clock::time_point{}; });
        return begun;
    }

   private:
    unsigned parts_;
    std::vector<PartTimes> times_;
};

}  // namespace lynx
