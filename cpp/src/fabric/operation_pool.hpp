// What the provider is busy with: one context for each posted operation, reused, never moved.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "fabric/handle.hpp"
#include "lynx/fabric.hpp"

namespace lynx::fabric {

/// Begins with the room that a provider with FI_CONTEXT or FI_CONTEXT2 writes to while it has the operation.
struct Operation {
    fi_context2 provider_room{};
    enum class Kind : std::uint8_t {
        kFree,
        kWrite,
        kAbandoned,  ///< a write that has been reported as failed and that the provider still has
        kReceive
    } kind = Kind::kFree;
    PeerId peer = 0;
    std::uint64_t cookie = 0;
    std::uint32_t tag = 0;
    std::size_t bytes = 0;
};
static_assert(offsetof(Operation, provider_room) == 0);

class OperationPool {
   public:
    [[nodiscard]] Operation& take(Operation::Kind kind) {
        if (free_.empty()) {
            all_.emplace_back();
            free_.reserve(all_.size());  // so that give_back never has to allocate
            free_.push_back(&all_.back());
        }
        Operation& operation = *free_.back();
        free_.pop_back();
        operation.kind = kind;
        return operation;
    }

    void give_back(Operation& operation) noexcept {
        operation.kind = Operation::Kind::kFree;
        free_.push_back(&operation);
    }

    /// The operation in use behind a context that came with an error, which not every provider fills in; or
    /// nullptr.
    [[nodiscard]] Operation* find(const void* context) noexcept {
        for (auto& operation : all_) {
            if (&operation == context && operation.kind != Operation::Kind::kFree) return &operation;
        }
        return nullptr;
    }

    /// All writes in use.
    [[nodiscard]] std::vector<Operation*> writes() {
        std::vector<Operation*> found;
        for (auto& operation : all_) {
            if (operation.kind == Operation::Kind::kWrite) found.push_back(&operation);
        }
        return found;
    }

   private:
    std::deque<Operation> all_;
    std::vector<Operation*> free_;
};

}  // namespace lynx::fabric
