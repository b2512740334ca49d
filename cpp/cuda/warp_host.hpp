// A warp on the CPU: the lanes run one after the other, phase by phase. With it the tests execute the very lines that
// the device executes, under sanitizers, without a device. See warp_device.cuh for what each function is there.
//
// On the device registers and shared memory begin with whatever the last kernel left. Here they begin with a pattern
// that is no likely value, so that a result which depends on them differs from the right one. What does not show here
// is a sync() that is missing: phases follow each other anyway.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "device.hpp"

namespace lynx::cuda {

class HostWarp {
   public:
    /// With so much shared memory of its own.
    explicit HostWarp(unsigned scratch_words = 0) : scratch_(scratch_words, kUnset * 0x01010101u) {}

    template <class T>
    class PerLane {
        static_assert(std::is_trivially_copyable_v<T>);

       public:
        PerLane() noexcept { std::memset(static_cast<void*>(lanes_.data()), kUnset, sizeof lanes_); }

        T& operator[](unsigned lane) noexcept { return lanes_[lane]; }
        const T& operator[](unsigned lane) const noexcept { return lanes_[lane]; }

       private:
        std::array<T, kLanes> lanes_;
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

    [[nodiscard]] std::uint32_t* scratch() noexcept { return scratch_.data(); }
    void or_scratch(unsigned index, std::uint32_t bits) noexcept { scratch_[index] |= bits; }
    void sync() noexcept {}

    static void add(std::uint64_t* to, std::uint64_t value) noexcept { *to += value; }
    static void lower(std::uint32_t* to, std::uint32_t value) noexcept { *to = std::min(*to, value); }

   private:
    static constexpr unsigned kUnset = 0xa5;  ///< each byte of what nothing was written to

    std::vector<std::uint32_t> scratch_;
};

}  // namespace lynx::cuda
