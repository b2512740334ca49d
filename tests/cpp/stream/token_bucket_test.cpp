#include "stream/token_bucket.hpp"

#include <gtest/gtest.h>

namespace lynx {
namespace {

using namespace std::chrono_literals;

// Takes `chunks` chunks as early as the bucket lets them go; the time at which the last one went.
Clock::time_point drain(TokenBucket& bucket, Clock::time_point now, int chunks, std::uint64_t chunk_bytes) {
    for (int i = 0; i < chunks; ++i) {
        now = std::max(now, bucket.ready_at(now));
        EXPECT_LE(bucket.ready_at(now), now) << "a chunk may go at the time that was named";
        bucket.take(chunk_bytes);
    }
    return now;
}

TEST(TokenBucket, KeepsItsRateWhateverTheChunkSize) {
    for (const std::uint64_t chunk : {1000u, 50'000u, 1'000'000u}) {
        const Clock::time_point start{};
        TokenBucket bucket(1'000'000, start);
        const int chunks = static_cast<int>(10'000'000 / chunk);
        const auto took = bucket.ready_at(drain(bucket, start, chunks, chunk)) - start;
        EXPECT_NEAR(std::chrono::duration<double>(took).count(), 10.0, 0.02) << "chunks of " << chunk;
    }
}

TEST(TokenBucket, SavesUpNoMoreThanAnInstantWhileIdle) {
    const Clock::time_point start{};
    TokenBucket bucket(1'000'000, start);
    const auto end = drain(bucket, start + 1h, 101, 10'000);
    EXPECT_GE(end - (start + 1h), 980ms) << "1 MB at 1 MB/s";
}

TEST(TokenBucket, WithoutARateNeverWaits) {
    const Clock::time_point start{};
    TokenBucket bucket(0, start);
    EXPECT_EQ(drain(bucket, start, 1000, 1u << 30), start);
}

}  // namespace
}  // namespace lynx
