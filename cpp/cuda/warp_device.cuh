// A warp of the device. A kernel's lines are written in phases: each() runs one on every lane, and what a lane keeps
// from one phase to the next is a PerLane. All lanes call every other function together.
#pragma once

#include <cstdint>

#include "device.hpp"

namespace lynx::cuda {

class DeviceWarp {
   public:
    __device__ __forceinline__ explicit DeviceWarp(std::uint32_t* scratch = nullptr)
        : scratch_(scratch), lane_(threadIdx.x % kLanes) {}

    /// One T of each lane; a lane reaches its own alone.
    template <class T>
    class PerLane {
       public:
        __device__ __forceinline__ T& operator[](unsigned) { return mine_; }
        __device__ __forceinline__ const T& operator[](unsigned) const { return mine_; }

       private:
        T mine_;
    };

    template <class Phase>
    __device__ __forceinline__ void each(Phase&& phase) {
        phase(lane_);
    }

    /// What lane ^ mask holds.
    template <class T>
    __device__ __forceinline__ PerLane<T> exchange(const PerLane<T>& x, unsigned mask) {
        return moved(x, [mask](auto word) { return __shfl_xor_sync(kAll, word, mask); });
    }
    /// What the lane `distance` below holds; of the lowest lanes their own.
    template <class T>
    __device__ __forceinline__ PerLane<T> from_below(const PerLane<T>& x, unsigned distance) {
        return moved(x, [distance](auto word) { return __shfl_up_sync(kAll, word, distance); });
    }
    /// What the lane `source` holds.
    template <class T>
    __device__ __forceinline__ PerLane<T> from_lane(const PerLane<T>& x, const PerLane<unsigned>& source) {
        return moved(x, [from = source[0]](auto word) { return __shfl_sync(kAll, word, from); });
    }
    /// What the highest lane holds.
    template <class T>
    __device__ __forceinline__ T last(const PerLane<T>& x) {
        return __shfl_sync(kAll, x[0], kLanes - 1);
    }
    /// One bit of each lane.
    __device__ __forceinline__ std::uint32_t ballot(const PerLane<bool>& predicate) {
        return __ballot_sync(kAll, predicate[0]);
    }

    /// The bits that are 1.
    __device__ __forceinline__ static unsigned count(std::uint32_t bits) { return __popc(bits); }

    /// Shared memory of this warp alone. What one lane wrote others may read after sync().
    __device__ __forceinline__ std::uint32_t* scratch() const { return scratch_; }
    __device__ __forceinline__ void or_scratch(unsigned index, std::uint32_t bits) { atomicOr(scratch_ + index, bits); }
    __device__ __forceinline__ void sync() { __syncwarp(); }

    /// On global memory, by any lanes of any warps at once.
    __device__ __forceinline__ static void add(std::uint64_t* to, std::uint64_t value) {
        static_assert(sizeof(unsigned long long) == sizeof value);
        atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
    }
    __device__ __forceinline__ static void lower(std::uint32_t* to, std::uint32_t value) { atomicMin(to, value); }

   private:
    static constexpr unsigned kAll = 0xffffffffu;

    template <class T, class Move>
    __device__ __forceinline__ static PerLane<T> moved(const PerLane<T>& x, Move move) {
        PerLane<T> out;
        out[0] = move(x[0]);
        return out;
    }
    template <class T, unsigned kCount, class Move>
    __device__ __forceinline__ static PerLane<Values<T, kCount>> moved(const PerLane<Values<T, kCount>>& x, Move move) {
        PerLane<Values<T, kCount>> out;
#pragma unroll
        for (unsigned i = 0; i < kCount; ++i) out[0].v[i] = move(x[0].v[i]);
        return out;
    }

    std::uint32_t* scratch_;
    unsigned lane_;
};

}  // namespace lynx::cuda
