#include "lynx/executor.hpp"

#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "core/text.hpp"

namespace lynx::bindings {

void bind_executor(nb::module_& m) {
    nb::class_<ThreadPool>(m, "ThreadPool",
                           "Threads for coding large tensors. Started once, asleep while there is nothing to do. "
                           "Any number of Python threads may use one at once.")
        .def(nb::init<unsigned>(), nb::arg("threads"),
             "`threads` work on a call, the one that calls being one of them: 1 starts none. Raises InvalidArgument "
             "unless it is 1 to 1024.")
        .def_prop_ro("concurrency", &ThreadPool::concurrency, "How many threads work on a call.")
        .def("__repr__", [](const ThreadPool& pool) { return text("ThreadPool(threads=", pool.concurrency(), ")"); });
}

}  // namespace lynx::bindings
