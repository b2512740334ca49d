// Every instruction set's kernels against the scalar ones, job by job and byte by byte: any bit pattern, any
// step, any alignment, any number of vectors. What the scalar kernels give is codec_test.cpp's business.
#include "codec/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "codec/float_environment.hpp"
#include "codec/tensors.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec {
namespace {

using lynx::testing::kAllDTypes;

// Blocks of 8 to 1,024, alone and several to a vector.
constexpr std::uint32_t kHeadDims[] = {8,   16,  24,  32,  40,  48,  56,  64,  72,  80,  96,  112, 120,  128,
                                       144, 160, 192, 208, 224, 256, 320, 384, 512, 576, 640, 768, 1000, 1024};
constexpr std::size_t kCounts[] = {1, 2, 3, 5, 15, 16, 17, 31, 33, 67};

enum class Fill { kNormal, kOutliers, kAnyBits, kTiny, kOffset, kHuge, kMixed };
constexpr Fill kFills[] = {Fill::kNormal, Fill::kOutliers, Fill::kAnyBits, Fill::kTiny,
                           Fill::kOffset, Fill::kHuge,     Fill::kMixed};

void for_each_kernels(const std::function<void(const Kernels&)>& check) {
    std::size_t checked = 0;
    for (const Kernels* kernels : built_kernels()) {
        if (kernels == &kScalarKernels || !kernels->supported()) continue;
        SCOPED_TRACE(kernels->name);
        check(*kernels);
        ++checked;
    }
    if (checked == 0) GTEST_SKIP() << "this build or CPU has the scalar kernels alone";
}

/// One element's bits. `vector` lets kMixed give neighbours different kinds.
std::uint32_t draw(DType dtype, Fill fill, std::size_t vector, std::size_t d, std::mt19937& random) {
    if (fill == Fill::kMixed) {
        constexpr Fill kKinds[] = {Fill::kNormal, Fill::kAnyBits, Fill::kNormal, Fill::kTiny,
                                   Fill::kNormal, Fill::kOffset,  Fill::kHuge};
        fill = kKinds[vector % std::size(kKinds)];
    }
    std::normal_distribution<float> normal;
    const unsigned bits = static_cast<unsigned>(8 * size_of(dtype));
    const auto word = static_cast<std::uint32_t>(random()) >> (32 - bits);
    const auto rounded = [&](double value) {
        return oracle::bits_of(dtype, oracle::round_to(dtype, static_cast<float>(value)));
    };
    switch (fill) {
        case Fill::kNormal: return rounded(normal(random));
        case Fill::kOutliers: return rounded(normal(random) * (d % 37 == 3 ? 50.0 : 1.0));
        case Fill::kAnyBits: return word;
        // Zeros of both signs, subnormals, and what the first sums make subnormal.
        case Fill::kTiny: {
            const std::uint32_t sign = 1u << (bits - 1);
            const unsigned mantissa = dtype == DType::kF32 ? 23 : dtype == DType::kBF16 ? 7 : 10;
            const std::uint32_t small = word % (2u << mantissa);
            return (word & sign) | (random() % 8 == 0 ? 0 : random() % 8 == 0 ? 40u << mantissa & (sign - 1) : small);
        }
        // Coordinate 0 carries all of the vector: every rotated value has its sign, and zero's rounding clips.
        case Fill::kOffset: return rounded((d == 0 ? 3000.0 : 0.001) * (1.0 + 0.1 * normal(random)));
        case Fill::kHuge: return rounded(normal(random) * (random() % 16 == 0 ? 1e38 : 30000.0));
        case Fill::kMixed: break;
    }
    return 0;
}

// Bytes at any alignment, with guards that must not change.
struct Guarded {
    static constexpr std::size_t kGuard = 128;
    std::vector<std::byte> bytes;
    std::size_t begin;
    std::size_t size;

    Guarded(std::size_t n, std::size_t misalignment) : bytes(n + 2 * kGuard + 64, std::byte{0xa5}), size(n) {
        const auto address = reinterpret_cast<std::uintptr_t>(bytes.data()) + kGuard;
        begin = kGuard + (64 - address % 64) % 64 + misalignment;
    }
    [[nodiscard]] std::byte* data() { return bytes.data() + begin; }
    friend bool operator==(const Guarded& a, const Guarded& b) {
        return a.size == b.size && std::memcmp(a.bytes.data() + a.begin, b.bytes.data() + b.begin, a.size) == 0;
    }
    [[nodiscard]] bool guards_are_whole() const {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            if ((i < begin || i >= begin + size) && bytes[i] != std::byte{0xa5}) return false;
        return true;
    }
};

struct Shape {
    std::uint32_t head_dim;
    std::size_t vectors;
    std::size_t misalignment;  ///< of every pointer, in bytes
    std::ptrdiff_t step;       ///< from vector to vector, in multiples of the element's size
    std::size_t gap;           ///< between planes, in bytes

    friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
        return out << "D " << s.head_dim << " vectors " << s.vectors << " misaligned " << s.misalignment << " step "
                   << s.step << " gap " << s.gap;
    }
};

/// Whole lines, odd addresses, elements' own alignment; vectors adjacent, apart, backwards and all the same one.
std::vector<Shape> shapes_of(std::uint32_t head_dim) {
    std::vector<Shape> shapes;
    const auto d = static_cast<std::ptrdiff_t>(head_dim);
    for (const std::size_t vectors : kCounts) {
        shapes.push_back({head_dim, vectors, 0, d, 0});
        shapes.push_back({head_dim, vectors, 4, d + 1, 3});
    }
    shapes.push_back({head_dim, 64, 0, d, 0});
    shapes.push_back({head_dim, 64, 8, d, 8});
    shapes.push_back({head_dim, 35, 1, 3 * d, 64});
    shapes.push_back({head_dim, 35, 32, -d - 7, 0});
    return shapes;
}

/// The vectors of a job in memory: where vector 0 lies depends on the step's sign.
struct Vectors {
    Guarded memory;
    std::byte* first;
    std::ptrdiff_t step;

    Vectors(const Shape& s, DType dtype)
        : memory(reach(s, dtype), s.misalignment),
          first(memory.data()),
          step(s.step * static_cast<std::ptrdiff_t>(size_of(dtype))) {
        if (step < 0) first -= step * static_cast<std::ptrdiff_t>(s.vectors - 1);
    }
    static std::size_t reach(const Shape& s, DType dtype) {
        const auto apart = static_cast<std::size_t>(std::abs(s.step));
        return (apart * (s.vectors - 1) + s.head_dim) * size_of(dtype);
    }
    void fill(const Shape& s, DType dtype, Fill kind, std::mt19937& random) const {
        for (std::size_t v = 0; v < s.vectors; ++v) {
            for (std::size_t d = 0; d < s.head_dim; ++d) {
                const std::uint32_t bits = draw(dtype, kind, v, d, random);
                std::memcpy(first + static_cast<std::ptrdiff_t>(v) * step + d * size_of(dtype), &bits, size_of(dtype));
            }
        }
    }
};

/// Scales, zeros and planes, as an encoder leaves them.
struct Coded {
    Guarded scales;
    Guarded zeros;
    Guarded planes;
    std::size_t plane_step;
    std::size_t nonfinite = 0;

    explicit Coded(const Shape& s)
        : scales(2 * s.vectors, s.misalignment),
          zeros(2 * s.vectors, s.misalignment),
          planes(kPlaneCount * (s.vectors * s.head_dim / 8 + s.gap) - s.gap, s.misalignment),
          plane_step(s.vectors * s.head_dim / 8 + s.gap) {}
};

Coded encoded(const Kernels& kernels, const Shape& s, DType dtype, const Vectors& src) {
    Coded out(s);
    const DefaultFloatEnvironment environment;
    out.nonfinite = kernels.encode[static_cast<std::size_t>(dtype)]({.src = src.first,
                                                                     .src_step = src.step,
                                                                     .vectors = s.vectors,
                                                                     .head_dim = s.head_dim,
                                                                     .scales = out.scales.data(),
                                                                     .zeros = out.zeros.data(),
                                                                     .planes = out.planes.data(),
                                                                     .plane_step = out.plane_step});
    return out;
}

Vectors decoded(const Kernels& kernels, const Shape& s, DType dtype, Coded& coded, unsigned planes) {
    Vectors out(s, dtype);
    const DefaultFloatEnvironment environment;
    kernels.decode[static_cast<std::size_t>(dtype)]({.scales = coded.scales.data(),
                                                     .zeros = coded.zeros.data(),
                                                     .planes = coded.planes.data(),
                                                     .plane_step = coded.plane_step,
                                                     .plane_count = planes,
                                                     .vectors = s.vectors,
                                                     .head_dim = s.head_dim,
                                                     .dst = out.first,
                                                     .dst_step = out.step});
    return out;
}

void expect_same_coded(const Kernels& kernels, const Shape& s, DType dtype, Fill fill, std::mt19937& random) {
    SCOPED_TRACE(::testing::Message() << name_of(dtype) << " fill " << static_cast<int>(fill) << " " << s);
    const Vectors src(s, dtype);
    src.fill(s, dtype, fill, random);
    const Coded expected = encoded(kScalarKernels, s, dtype, src);
    const Coded got = encoded(kernels, s, dtype, src);
    ASSERT_EQ(got.nonfinite, expected.nonfinite);
    ASSERT_TRUE(got.scales == expected.scales);
    ASSERT_TRUE(got.zeros == expected.zeros);
    ASSERT_TRUE(got.planes == expected.planes);
}

TEST(Kernels, EncodeEveryShapeAsTheScalarOnesDo) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(61);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : kHeadDims)
                for (const Shape& s : shapes_of(head_dim)) {
                    expect_same_coded(kernels, s, dtype, Fill::kNormal, random);
                    if (::testing::Test::HasFatalFailure()) return;
                }
    });
}

TEST(Kernels, EncodeAnyBitPatternsAsTheScalarOnesDo) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(67);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : kHeadDims)
                for (const Fill fill : kFills)
                    for (int repeat = 0; repeat < 4; ++repeat) {
                        expect_same_coded(kernels, {head_dim, 61, 0, head_dim, 0}, dtype, fill, random);
                        if (::testing::Test::HasFatalFailure()) return;
                    }
    });
}

// The one odd vector goes to each place of a batch: no kernel may let it reach its neighbours.
TEST(Kernels, EncodeOneNonfiniteVectorAmongOthersAsTheScalarOnesDo) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(71);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : {64u, 96u, 128u, 256u})
                for (std::size_t odd = 0; odd < 40; ++odd) {
                    const Shape s{head_dim, 40, 0, head_dim, 0};
                    SCOPED_TRACE(::testing::Message() << name_of(dtype) << " odd " << odd << " " << s);
                    const Vectors src(s, dtype);
                    src.fill(s, dtype, Fill::kNormal, random);
                    const std::uint32_t bits = oracle::bits_of(dtype, odd % 2 == 0 ? INFINITY : NAN);
                    std::memcpy(
                        src.first + static_cast<std::ptrdiff_t>(odd) * src.step + random() % head_dim * size_of(dtype),
                        &bits, size_of(dtype));
                    const Coded expected = encoded(kScalarKernels, s, dtype, src);
                    const Coded got = encoded(kernels, s, dtype, src);
                    ASSERT_EQ(got.nonfinite, 1u);
                    ASSERT_TRUE(got.scales == expected.scales);
                    ASSERT_TRUE(got.zeros == expected.zeros);
                    ASSERT_TRUE(got.planes == expected.planes);
                }
    });
}

TEST(Kernels, EncodeWritesOnlyWhatIsItsOwn) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(73);
        for (const std::uint32_t head_dim : kHeadDims)
            for (const Shape& s : shapes_of(head_dim)) {
                const Vectors src(s, DType::kBF16);
                src.fill(s, DType::kBF16, Fill::kNormal, random);
                const Coded got = encoded(kernels, s, DType::kBF16, src);
                EXPECT_TRUE(got.scales.guards_are_whole()) << s;
                EXPECT_TRUE(got.zeros.guards_are_whole()) << s;
                EXPECT_TRUE(got.planes.guards_are_whole()) << s;
            }
    });
}

/// Any codes, and any finite scale and zero: also those that no encoder writes.
Coded random_coded(const Shape& s, std::mt19937& random, bool hostile) {
    Coded out(s);
    std::generate_n(out.planes.data(), out.planes.size, [&] { return static_cast<std::byte>(random()); });
    for (std::size_t v = 0; v < s.vectors; ++v) {
        auto scale = static_cast<std::uint16_t>(random() % 0x7c00);
        auto zero = static_cast<std::uint16_t>(random() % 0x7c00 | (random() & 0x8000));
        if (random() % 8 == 0) scale = static_cast<std::uint16_t>(random() % 0x400);
        if (hostile) scale = static_cast<std::uint16_t>(random() % 4 == 0 ? 0 : scale) | (random() & 0x8000);
        std::memcpy(out.scales.data() + 2 * v, &scale, 2);
        std::memcpy(out.zeros.data() + 2 * v, &zero, 2);
    }
    return out;
}

void expect_same_decoded(const Kernels& kernels, const Shape& s, DType dtype, unsigned planes, Coded& coded) {
    SCOPED_TRACE(::testing::Message() << name_of(dtype) << " planes " << planes << " " << s);
    const Vectors expected = decoded(kScalarKernels, s, dtype, coded, planes);
    const Vectors got = decoded(kernels, s, dtype, coded, planes);
    ASSERT_TRUE(got.memory == expected.memory);
}

TEST(Kernels, DecodeEveryShapeAsTheScalarOnesDo) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(79);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : kHeadDims)
                for (const Shape& s : shapes_of(head_dim)) {
                    Coded coded = random_coded(s, random, false);
                    for (const unsigned planes : {4u, 8u}) {
                        expect_same_decoded(kernels, s, dtype, planes, coded);
                        if (::testing::Test::HasFatalFailure()) return;
                    }
                }
    });
}

TEST(Kernels, DecodeEveryNumberOfPlanesAsTheScalarOnesDo) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(83);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : kHeadDims)
                for (const bool hostile : {false, true}) {
                    const Shape s{head_dim, 45, 0, head_dim, 0};
                    Coded coded = random_coded(s, random, hostile);
                    for (unsigned planes = 1; planes <= kPlaneCount; ++planes) {
                        expect_same_decoded(kernels, s, dtype, planes, coded);
                        if (::testing::Test::HasFatalFailure()) return;
                    }
                }
    });
}

// All ones is where a narrow integer would overflow.
TEST(Kernels, DecodeTheGreatestCodesAsTheScalarOnesDo) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(89);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : kHeadDims) {
                const Shape s{head_dim, 33, 0, head_dim, 0};
                Coded coded = random_coded(s, random, false);
                std::fill_n(coded.planes.data(), coded.planes.size, std::byte{0xff});
                for (unsigned planes = 1; planes <= kPlaneCount; ++planes) {
                    expect_same_decoded(kernels, s, dtype, planes, coded);
                    if (::testing::Test::HasFatalFailure()) return;
                }
            }
    });
}

TEST(Kernels, DecodeReadsAndWritesOnlyWhatIsItsOwn) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(97);
        for (const DType dtype : kAllDTypes)
            for (const std::uint32_t head_dim : kHeadDims)
                for (const Shape& s : shapes_of(head_dim)) {
                    Coded coded = random_coded(s, random, true);
                    // Scales and zeros that are not finite give values that nobody defines, in their place.
                    constexpr std::uint16_t kNan = 0xfe01;
                    std::memcpy(coded.scales.data(), &kNan, 2);
                    std::memcpy(coded.zeros.data() + 2 * (s.vectors - 1), &kNan, 2);
                    EXPECT_TRUE(decoded(kernels, s, dtype, coded, 5).memory.guards_are_whole()) << s;
                }
    });
}

// Too large for the caches, where a kernel may write past them; compared with the same vectors in small jobs.
TEST(Kernels, CodeLargeJobsAsSmallOnes) {
    for_each_kernels([](const Kernels& kernels) {
        std::mt19937 random(101);
        for (const std::uint32_t head_dim : {64u, 128u, 192u}) {
            const Shape s{head_dim, (24u << 20) / (2 * head_dim) + 7, 0, head_dim, 0};
            const Vectors src(s, DType::kBF16);
            std::uint64_t state = 1;
            for (std::size_t i = 0; i < s.vectors * head_dim; ++i) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                const auto bits = static_cast<std::uint16_t>(0x3f00u | (state >> 40 & 0x80ffu));
                std::memcpy(src.first + 2 * i, &bits, 2);
            }
            Coded coded = encoded(kernels, s, DType::kBF16, src);
            const Vectors out = decoded(kernels, s, DType::kBF16, coded, 5);
            for (std::size_t first = 0; first < s.vectors; first += s.vectors / 50) {
                const std::size_t count = std::min<std::size_t>(100, s.vectors - first);
                const Shape part{head_dim, count, 0, head_dim, 0};
                Vectors small(part, DType::kBF16);
                std::memcpy(small.first, src.first + 2 * first * head_dim, 2 * count * head_dim);
                Coded expected = encoded(kScalarKernels, part, DType::kBF16, small);
                for (unsigned p = 0; p < kPlaneCount; ++p)
                    ASSERT_EQ(std::memcmp(coded.planes.data() + p * coded.plane_step + first * head_dim / 8,
                                          expected.planes.data() + p * expected.plane_step, count * head_dim / 8),
                              0)
                        << head_dim << " " << first << " plane " << p;
                const Vectors values = decoded(kScalarKernels, part, DType::kBF16, expected, 5);
                ASSERT_EQ(std::memcmp(out.first + 2 * first * head_dim, values.first, 2 * count * head_dim), 0);
            }
        }
    });
}

}  // namespace
}  // namespace lynx::codec
