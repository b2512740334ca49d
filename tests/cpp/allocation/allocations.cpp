// The executable's definitions come before the C library's, for the shared libraries too. Each counts and then
// calls what glibc keeps under another name. CMake defines LYNX_COUNTS_ALLOCATIONS where that is possible.
#include "allocation/allocations.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace lynx::testing {
namespace {

std::atomic<std::size_t> count{0};

}  // namespace

bool counts_allocations() noexcept {
#ifdef LYNX_COUNTS_ALLOCATIONS
    return true;
#else
    return false;
#endif
}

std::size_t allocations() noexcept {
    return count.load();
}

}  // namespace lynx::testing

#ifdef LYNX_COUNTS_ALLOCATIONS

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): the names that glibc gives
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t items, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
    ++lynx::testing::count;
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void* calloc(std::size_t items, std::size_t bytes) {
    ++lynx::testing::count;
    return __libc_calloc(items, bytes);
}

__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
    ++lynx::testing::count;
    return __libc_realloc(memory, bytes);
}

__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t bytes) {
    ++lynx::testing::count;
    return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    ++lynx::testing::count;
    return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
    ++lynx::testing::count;
    void* const found = __libc_memalign(alignment, bytes);
    if (found == nullptr) return ENOMEM;
    *memory = found;
    return 0;
}

__attribute__((visibility("default"))) void* mmap(void* at, std::size_t bytes, int protection, int flags, int file,
                                                  off_t offset) {
    ++lynx::testing::count;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): system calls return integers
    return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}

}  // extern "C"

#endif
