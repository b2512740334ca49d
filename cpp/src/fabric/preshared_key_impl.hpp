// What a PresharedKey holds.
#pragma once

#include "fabric/secret.hpp"
#include "lynx/preshared_key.hpp"

namespace lynx {

/// Where one is, libsodium is ready to be used.
struct PresharedKey::Impl {
    /// The secret's hash, which is as long as the keyed MAC wants it.
    fabric::Secret<crypto_auth_KEYBYTES> mac_key;
};

}  // namespace lynx
