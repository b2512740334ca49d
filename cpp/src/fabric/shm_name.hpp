// Names for shm endpoints. The provider keeps one file in /dev/shm for each endpoint and removes it when the
// endpoint closes, which a killed process never does. Hence names of our own, from which a later process can
// tell that the owner has gone.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lynx::fabric {

/// "lynx-<pid namespace>-<pid>-<start time of the process>-<random>": unique for each call.
[[nodiscard]] std::string make_shm_name();

/// Removes the files that endpoints of dead Lynx processes of this user and pid namespace have left.
/// Files of living processes, of other namespaces (containers that share /dev/shm) and of other software
/// stay.
void remove_stale_shm_files() noexcept;

/// Removes the file of one endpoint, given the provider's address of it ("fi_shm://name", a zero at its end).
void remove_shm_file(const std::vector<std::byte>& address) noexcept;

}  // namespace lynx::fabric
