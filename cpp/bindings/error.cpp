#include "lynx/error.hpp"

#include <array>

#include "bindings.hpp"

namespace lynx::bindings {

namespace {

// The Python types, in the order of `translate`. They live as long as the interpreter, as the module does.
enum Index : std::size_t {
    kError,
    kInvalid,
    kArena,
    kTimeout,
    kConnection,
    kAuthentication,
    kPeer,
    kCancelled,
    kProtocol,
    kCorrupt,
    kFabric,
    kUnsupported,
    kCuda,
    kCount
};
std::array<PyObject*, kCount>& types() {
    static std::array<PyObject*, kCount> instance{};
    return instance;
}

void translate(const std::exception_ptr& p, void*) {
    const auto raise = [](Index type, const std::exception& e) { PyErr_SetString(types()[type], e.what()); };
    try {
        std::rethrow_exception(p);
    } catch (const InvalidArgument& e) {
        raise(kInvalid, e);
    } catch (const ArenaFull& e) {
        raise(kArena, e);
    } catch (const Timeout& e) {
        raise(kTimeout, e);
    } catch (const ConnectionFailed& e) {
        raise(kConnection, e);
    } catch (const AuthenticationFailed& e) {
        raise(kAuthentication, e);
    } catch (const PeerLost& e) {
        raise(kPeer, e);
    } catch (const Cancelled& e) {
        raise(kCancelled, e);
    } catch (const ProtocolError& e) {
        raise(kProtocol, e);
    } catch (const CorruptData& e) {
        raise(kCorrupt, e);
    } catch (const FabricError& e) {
        raise(kFabric, e);
    } catch (const Unsupported& e) {
        raise(kUnsupported, e);
    } catch (const CudaError& e) {
        raise(kCuda, e);
    } catch (const Error& e) {
        raise(kError, e);
    }
}

}  // namespace

void bind_error(nb::module_& m) {
    const auto define = [&](Index index, const char* name, PyObject* also, const char* doc) {
        const nb::object bases = also == nullptr
                                     ? nb::borrow(types()[kError])
                                     : nb::object(nb::make_tuple(nb::handle(types()[kError]), nb::handle(also)));
        const std::string qualified = std::string("lynx._core.") + name;
        types()[index] =
            PyErr_NewExceptionWithDoc(qualified.c_str(), doc, index == kError ? PyExc_Exception : bases.ptr(), nullptr);
        if (types()[index] == nullptr) throw nb::python_error();
        m.attr(name) = nb::handle(types()[index]);
    };
    types()[kError] = PyExc_Exception;
    define(kError, "Error", nullptr, "Base of everything Lynx raises on purpose.");
    define(kInvalid, "InvalidArgument", PyExc_ValueError,
           "Something was passed that cannot be used: a shape, a dtype, a size, a name.");
    define(kArena, "ArenaFull", PyExc_MemoryError, "The registered arena has no room left for what was asked.");
    define(kTimeout, "Timeout", PyExc_TimeoutError, "A deadline passed first.");
    define(kConnection, "ConnectionFailed", PyExc_ConnectionError,
           "An address could not be listened on, or nobody answered at it.");
    define(kAuthentication, "AuthenticationFailed", nullptr,
           "A peer has not proved that it has the same pre-shared key, or what came was not sent by it.");
    define(kPeer, "PeerLost", PyExc_ConnectionError, "A peer that was there has gone.");
    define(kCancelled, "Cancelled", nullptr, "The other side ended the transfer on purpose.");
    define(kProtocol, "ProtocolError", nullptr, "What a peer sent cannot be accepted.");
    define(kCorrupt, "CorruptData", nullptr,
           "Coded bytes do not hold together. Not all damage shows: this is no checksum.");
    define(kFabric, "FabricError", nullptr, "A libfabric call failed, or no provider fits.");
    define(kUnsupported, "Unsupported", nullptr, "This build or this machine lacks what was asked for.");
    define(kCuda, "CudaError", nullptr, "The CUDA runtime refused a call.");
    nb::register_exception_translator(translate);
}

}  // namespace lynx::bindings
