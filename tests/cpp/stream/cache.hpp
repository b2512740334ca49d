// A small cache with known content, for the tests of streams.
#pragma once

#include <random>
#include <vector>

#include "lynx/manifest.hpp"
#include "lynx/plane_receiver.hpp"
#include "lynx/plane_sender.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx {

inline constexpr TensorRole kRoles[] = {TensorRole::kKey, TensorRole::kValue};

struct TestCache {
    std::uint32_t layers, heads, tokens, head_dim;
    std::vector<std::vector<float>> tensors;  // layer * 2 + role

    TestCache(std::uint32_t layers_, std::uint32_t heads_, std::uint32_t tokens_, std::uint32_t head_dim_)
        : layers(layers_), heads(heads_), tokens(tokens_), head_dim(head_dim_) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        for (std::uint32_t i = 0; i < 2 * layers; ++i) {
            auto& t = tensors.emplace_back(std::size_t{heads} * tokens * head_dim);
            for (float& x : t) x = normal(random);
        }
    }

    [[nodiscard]] std::vector<float>& of(std::uint32_t layer, TensorRole role) {
        return tensors[layer * 2 + static_cast<std::uint32_t>(role)];
    }

    template <class View, class Data>
    [[nodiscard]] View view_of(Data* data) const {
        const auto h = std::int64_t{heads}, t = std::int64_t{tokens}, d = std::int64_t{head_dim};
        return {reinterpret_cast<decltype(View::data)>(data), DType::kF32, {h, t, d}, {t * d, d, 1}};
    }

    [[nodiscard]] Manifest manifest(std::uint64_t request_id, Coding coding = Coding::kPlanes, std::uint8_t parts = 2,
                                    std::uint32_t chunk_bytes = kMinChunkBytes) const {
        Manifest m{.request_id = request_id,
                   .model = "test",
                   .context_tokens = tokens,
                   .first_token = 42,
                   .parts = parts,
                   .chunk_bytes = chunk_bytes,
                   .tensors = {}};
        for (std::uint32_t layer = 0; layer < layers; ++layer)
            for (const TensorRole role : kRoles)
                m.tensors.push_back({layer, role, {coding, DType::kF32, heads, tokens, head_dim, 4}});
        return m;
    }

    void put_all(PlaneSender& sender) {
        for (std::uint32_t layer = 0; layer < layers; ++layer)
            for (const TensorRole role : kRoles) sender.put(layer, role, view_of<TensorView>(of(layer, role).data()));
    }

    // The largest difference between this cache and what the receiver has through `part`.
    [[nodiscard]] float error_of(const PlaneReceiver& receiver, unsigned part) {
        float worst = 0;
        std::vector<float> out(tensors[0].size());
        for (std::uint32_t layer = 0; layer < layers; ++layer)
            for (const TensorRole role : kRoles) {
                receiver.decode(layer, role, part, view_of<MutableTensorView>(out.data()));
                for (std::size_t i = 0; i < out.size(); ++i)
                    worst = std::max(worst, std::abs(out[i] - of(layer, role)[i]));
            }
        return worst;
    }
};

}  // namespace lynx
