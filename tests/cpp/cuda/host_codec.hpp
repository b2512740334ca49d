// The device's codec run by the CPU: the same jobs, shapes and phases that the kernels are made of, warp by warp.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/arguments.hpp"
#include "cuda/encode_phases.hpp"
#include "cuda/exact_decode_phases.hpp"
#include "cuda/exact_encode_phases.hpp"
#include "cuda/raw_phases.hpp"
#include "cuda/warp_host.hpp"
#include "lynx/cuda.hpp"

namespace lynx::testing {

/// Bytes at a multiple of 64, exactly as many as asked for, so that a sanitizer sees what goes past them.
class AlignedBytes {
   public:
    explicit AlignedBytes(std::size_t bytes, std::byte fill = std::byte{0xa5})
        : data_(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{64}))),
          bytes_(bytes) {
        std::memset(data_.get(), static_cast<int>(fill), bytes);
    }
    [[nodiscard]] ByteSpan span() { return {data_.get(), bytes_}; }
    [[nodiscard]] ConstByteSpan span() const { return {data_.get(), bytes_}; }

   private:
    struct Free {
        void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
    };
    std::unique_ptr<std::byte, Free> data_;
    std::size_t bytes_;
};

/// The kernels choose shapes as launch.cuh does; the tests may take the general one where a fixed one would do.
enum class ShapeChoice { kAsLaunched, kGeneral };

template <class Use>
void with_shape(std::uint32_t head_dim, ShapeChoice choice, Use use) {
    if (choice == ShapeChoice::kAsLaunched) {
        if (head_dim == 64) return use(cuda::FixedShape<64>{});
        if (head_dim == 128) return use(cuda::FixedShape<128>{});
        if (head_dim == 256) return use(cuda::FixedShape<256>{});
    }
    if (head_dim <= cuda::kRowCoordinates) return use(cuda::AnyShape<1>(head_dim));
    use(cuda::AnyShape<kMaxHeadDim / cuda::kRowCoordinates>(head_dim));
}

template <class Use>
void with_type(DType type, Use use) {
    switch (type) {
        case DType::kBF16: return use(std::integral_constant<DType, DType::kBF16>{});
        case DType::kF16: return use(std::integral_constant<DType, DType::kF16>{});
        case DType::kF32: return use(std::integral_constant<DType, DType::kF32>{});
    }
}

template <class Use>
void with_exact_type(DType type, Use use) {
    if (type == DType::kBF16) return use(std::integral_constant<DType, DType::kBF16>{});
    use(std::integral_constant<DType, DType::kF16>{});
}

class HostCodec {
   public:
    explicit HostCodec(ShapeChoice choice = ShapeChoice::kAsLaunched) : choice_(choice) {}

    std::uint64_t encode(const TensorView& src, const PlaneLayout& layout, ByteSpan coded) const {
        std::uint64_t nonfinite = 0;
        if (layout.spec().coding == Coding::kRaw) {
            copy(cuda::raw_encode_job(src, layout, coded), layout, src.dtype, src.dtype);
            return 0;
        }
        const cuda::EncodeJob job = cuda::encode_job(src, layout, coded, &nonfinite);
        with_type(src.dtype, [&](auto type) {
            for_each_slab(layout, [&](auto& warp, const auto& shape, std::uint32_t head, std::uint32_t token) {
                cuda::encode_slab<type.value>(warp, shape, job, head, token);
            });
        });
        return nonfinite;
    }

    void decode(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes, const MutableTensorView& dst) const {
        if (layout.spec().coding == Coding::kRaw)
            return copy(cuda::raw_decode_job(layout, coded, planes, dst), layout, layout.spec().dtype, dst.dtype);
        const cuda::DecodeJob job = cuda::decode_job(layout, coded, planes, dst);
        with_type(dst.dtype, [&](auto type) {
            for_each_slab(layout, [&](auto& warp, const auto& shape, std::uint32_t head, std::uint32_t token) {
                cuda::decode_slab<type.value>(warp, shape, job, head, token);
            });
        });
    }

    void encode_exact(const TensorView& src, const PlaneLayout& layout, ByteSpan coded) const {
        AlignedBytes workspace(cuda::exact_workspace_bytes(layout));
        const cuda::ExactEncodeJob job = cuda::exact_encode_job(src, layout, coded, workspace.span());
        const std::uint32_t tiles = cuda::tiles_of(job.groups);
        cuda::HostWarp warp;
        with_exact_type(src.dtype, [&](auto type) {
            with_shape(layout.spec().head_dim, choice_, [&](const auto& shape) {
                for (std::uint32_t g = 0; g < job.groups.count; ++g)
                    cuda::measure_group<type.value>(warp, shape, job, g);
                for (std::uint32_t tile = 0; tile < tiles; ++tile) cuda::sum_tile(warp, job, tile);
                cuda::scan_tiles(warp, job);
                for (std::uint32_t tile = 0; tile < tiles; ++tile) cuda::scan_tile(warp, job, tile);
                // On the device groups are written in no order.
                for (std::uint32_t g = job.groups.count; g-- > 0;) {
                    cuda::HostWarp writer(cuda::kScratchWords);
                    cuda::write_group<type.value>(writer, shape, job, g);
                }
            });
        });
    }

    [[nodiscard]] std::uint32_t decode_exact(const PlaneLayout& layout, ConstByteSpan coded,
                                             const MutableTensorView& dst) const {
        std::uint32_t fault = cuda::kNoFault;
        const cuda::ExactDecodeJob job = cuda::exact_decode_job(layout, coded, dst, &fault);
        with_exact_type(layout.spec().dtype, [&](auto from) {
            with_type(dst.dtype, [&](auto to) {
                with_shape(layout.spec().head_dim, choice_, [&](const auto& shape) {
                    for (std::uint32_t g = job.groups.count; g-- > 0;) {
                        cuda::HostWarp warp(cuda::kRowCoordinates);
                        cuda::decode_group<from.value, to.value>(warp, shape, job, g);
                    }
                });
            });
        });
        return fault;
    }

   private:
    void copy(const cuda::RawJob& job, const PlaneLayout& layout, DType from, DType to) const {
        with_type(from, [&](auto source) {
            with_type(to, [&](auto target) {
                for_each_slab(layout, [&](auto& warp, const auto& shape, std::uint32_t head, std::uint32_t token) {
                    cuda::copy_slab<source.value, target.value>(warp, shape, job, head, token);
                });
            });
        });
    }

    template <class Use>
    void for_each_slab(const PlaneLayout& layout, Use use) const {
        cuda::HostWarp warp;
        with_shape(layout.spec().head_dim, choice_, [&](const auto& shape) {
            for (std::uint32_t head = 0; head < layout.spec().heads; ++head)
                for (std::uint32_t token = 0; token < layout.spec().tokens; token += cuda::slab_vectors(shape))
                    use(warp, shape, head, token);
        });
    }

    ShapeChoice choice_;
};

}  // namespace lynx::testing
