// A warp on the CPU: the lanes run one after the other, phase by phase. With it the tests execute the very lines that
// the device executes, under sanitizers, without a device. See warp_device.cuh for what each function is there.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "device.hpp"

namespace lynx::cuda {

class HostWarp {
   public:
    /// `scratch` is the warp's shared memory.
    explicit HostWarp(std::uint32_t* scratch = nullptr) noexcept : scratch_(scratch) {}

    template <class T>
    class PerLane {
       public:
        T& operator[](unsigned lane) noexcept { return lanes_[lane]; }
        const T& operator[](unsigned lane) const noexcept { return lanes_[lane]; }

       private:
        std::array<T, kLanes> lanes_{};
    };

    template <class Phase>
    void each(Phase&& phase) {
        for (unsigned lane = 0; lane < kLanes; ++lane) phase(lane);
    }

    template <class T>
    PerLane<T> exchange(const PerLane<T>& x, unsigned mask) {
        PerLane<T> out;
        for (unsigned lane = 0; lane < kLanes; ++lane) out[lane] = x[lane ^ mask];
        return out;
    }
    template <class T>
    PerLane<T> from_below(const PerLane<T>& x, unsigned distance) {
        PerLane<T> out;
        for (unsigned lane = 0; lane < kLanes; ++lane) out[lane] = x[lane < distance ? lane : lane - distance];
        return out;
    }
    template <class T>
    PerLane<T> from_lane(const PerLane<T>& x, const PerLane<unsigned>& source) {
        PerLane<T> out;
        for (unsigned lane = 0; lane < kLanes; ++lane) out[lane] = x[source[lane] % kLanes];
        return out;
    }
    template <class T>
    T last(const PerLane<T>& x) {
        return x[kLanes - 1];
    }
    std::uint32_t ballot(const PerLane<bool>& predicate) {
        std::uint32_t bits = 0;
        for (unsigned lane = 0; lane < kLanes; ++lane) bits |= std::uint32_t{predicate[lane]} << lane;
        return bits;
    }

    static unsigned count(std::uint32_t bits) noexcept { return static_cast<unsigned>(std::popcount(bits)); }

    [[nodiscard]] std::uint32_t* scratch() const noexcept { return scratch_; }
    void or_scratch(unsigned index, std::uint32_t bits) noexcept { scratch_[index] |= bits; }
    void sync() noexcept {}

    static void add(std::uint64_t* to, std::uint64_t value) noexcept { *to += value; }
    static void lower(std::uint32_t* to, std::uint32_t value) noexcept { *to = std::min(*to, value); }

   private:
    std::uint32_t* scratch_;
};

}  // namespace lynx::cuda
