// The caller's thread may round otherwise or flush subnormals to zero (torch.set_flush_denormal, a library
// built with -ffast-math). The wire format does not: its bytes are the same whatever the caller has set.
#pragma once

#include <cfenv>

namespace lynx::codec {

/// The default floating-point environment for the life of the object; the caller's afterwards.
class DefaultFloatEnvironment {
   public:
    DefaultFloatEnvironment() noexcept {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
    DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
    DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

   private:
    std::fenv_t saved_;
};

}  // namespace lynx::codec
