#include "lynx/sampler.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.hpp"
#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::bindings {

namespace {

bool is(nb::dlpack::dtype t, nb::dlpack::dtype_code code, int bits) {
    return t.code == static_cast<std::uint8_t>(code) && t.bits == bits && t.lanes == 1;
}

using Array = nb::ndarray<nb::ro>;

/// Logits in host memory with so many axes, the last of adjacent elements.
Array borrow_logits(nb::handle object, std::size_t axes) {
    Array array;
    if (!nb::try_cast<Array>(object, array) || array.device_type() != nb::device::cpu::value || array.ndim() != axes ||
        !is(array.dtype(), nb::dlpack::dtype_code::Float, 32) ||
        (array.shape(axes - 1) > 1 && array.stride(axes - 1) != 1)) {
        throw InvalidArgument(text("logits were given as ", describe(object), "; they have to be ", axes,
                                   "-dimensional, fp32, in host memory and contiguous (for torch: "
                                   ".detach().float().cpu().contiguous())"));
    }
    return array;
}

/// A text's tokens: an int32 array as it lies, or a copy of a sequence of ints.
class History {
   public:
    explicit History(nb::handle object) {
        if (nb::try_cast<Array>(object, array_) && array_.ndim() == 1 &&
            array_.device_type() == nb::device::cpu::value && is(array_.dtype(), nb::dlpack::dtype_code::Int, 32) &&
            (array_.shape(0) < 2 || array_.stride(0) == 1)) {
            tokens_ = {static_cast<const Token*>(array_.data()), array_.shape(0)};
        } else if (nb::try_cast<std::vector<Token>>(object, copy_)) {
            tokens_ = copy_;
        } else {
            throw InvalidArgument(text("a history was given as ", describe(object),
                                       "; it has to be a sequence of ints, or a contiguous one-dimensional int32 array "
                                       "in host memory"));
        }
    }
    History(const History&) = delete;
    History& operator=(const History&) = delete;

    [[nodiscard]] std::span<const Token> tokens() const noexcept { return tokens_; }

   private:
    Array array_;
    std::vector<Token> copy_;
    std::span<const Token> tokens_;
};

Sampled sample(const Sampler& sampler, nb::handle logits, std::uint64_t position, nb::handle history) {
    const Array array = borrow_logits(logits, 1);
    const History text_so_far(history);
    const nb::gil_scoped_release release;
    return sampler.sample({static_cast<const float*>(array.data()), array.shape(0)}, position, text_so_far.tokens());
}

std::vector<Sampled> sample_rows(const Sampler& sampler, nb::handle logits, std::uint64_t first_position,
                                 nb::handle history) {
    const Array array = borrow_logits(logits, 2);
    const History text_so_far(history);
    const std::span<const Token> tokens = text_so_far.tokens();
    const std::size_t rows = array.shape(0);
    // A history may be left out where none is read.
    const bool read = sampler.sampling().repetition_penalty != 1;
    if ((read || !tokens.empty()) && tokens.size() + 1 < rows) {
        throw InvalidArgument(text("sample_rows: ", rows, " rows of logits and a history of ", tokens.size(),
                                   " tokens; it has to hold the text before the last row, so ", rows - 1, " at least"));
    }
    const nb::gil_scoped_release release;
    std::vector<Sampled> out(rows);
    for (std::size_t i = 0; i < rows; ++i) {
        const auto* row = static_cast<const float*>(array.data()) + static_cast<std::ptrdiff_t>(i) * array.stride(0);
        out[i] = sampler.sample({row, array.shape(1)}, first_position + i,
                                tokens.empty() ? tokens : tokens.first(tokens.size() + 1 + i - rows));
    }
    return out;
}

std::string repr(const Sampling& s) {
    return text("Sampling(temperature=", s.temperature, ", top_k=", s.top_k, ", top_p=", s.top_p, ", min_p=", s.min_p,
                ", repetition_penalty=", s.repetition_penalty, ", seed=", s.seed, ")");
}

template <class T>
void define_value(nb::class_<T>& c) {
    c.def(
         "__eq__", [](const T& a, const T& b) { return a == b; }, nb::is_operator(),
         nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__", [](nb::handle self) { return nb::hash(nb::repr(self)); });
}

}  // namespace

void bind_sampler(nb::module_& m) {
    nb::class_<Sampling> sampling(
        m, "Sampling",
        "How tokens are chosen: the names and meanings of Hugging Face transformers, applied in its order (repetition "
        "penalty, temperature, top-k, top-p, min-p). temperature 0 is greedy, top_k 0, top_p 1 and min_p 0 are off. A "
        "frozen value. Raises InvalidArgument for what makes no sense.");
    sampling
        .def(
            "__init__",
            [](Sampling* self, float temperature, std::uint32_t top_k, float top_p, float min_p,
               float repetition_penalty, std::uint64_t seed) {
                const Sampling value{temperature, top_k, top_p, min_p, repetition_penalty, seed};
                value.validate();
                new (self) Sampling(value);
            },
            nb::kw_only(), nb::arg("temperature") = 0.0F, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0F,
            nb::arg("min_p") = 0.0F, nb::arg("repetition_penalty") = 1.0F, nb::arg("seed") = 0)
        .def_ro("temperature", &Sampling::temperature)
        .def_ro("top_k", &Sampling::top_k)
        .def_ro("top_p", &Sampling::top_p)
        .def_ro("min_p", &Sampling::min_p)
        .def_ro("repetition_penalty", &Sampling::repetition_penalty)
        .def_ro("seed", &Sampling::seed)
        .def("__repr__", &repr);
    define_value(sampling);

    nb::class_<Sampled> sampled(m, "Sampled", "A token, and how far another one was.");
    sampled.def_ro("token", &Sampled::token)
        .def_ro("margin", &Sampled::margin,
                "About the least change in the difference of two logits that could give another token; infinite if no "
                "other can come.")
        .def("__repr__", [](const Sampled& s) { return text("Sampled(token=", s.token, ", margin=", s.margin, ")"); });
    define_value(sampled);

    nb::class_<Sampler>(m, "Sampler",
                        "Chooses tokens from logits as a Sampling says. The noise of a token is decided by seed, "
                        "position and token alone: the same logits give the same token. Thread-safe.")
        .def(nb::init<Sampling>(), nb::arg("sampling") = Sampling{})
        .def_prop_ro("sampling", &Sampler::sampling, nb::rv_policy::copy)
        .def("sample", &sample, nb::arg("logits"), nb::arg("position"), nb::arg("history") = nb::tuple(),
             nb::sig("def sample(self, logits: object, position: int, history: object = ()) -> Sampled"),
             "The token at `position` of the whole text, prompt included. `logits`: one-dimensional, fp32, in host "
             "memory; not copied. `history`, read only if there is a penalty: the tokens before `position`, a sequence "
             "of ints or an int32 array. Raises InvalidArgument if a logit is NaN or +inf, or all are -inf.")
        .def("sample_rows", &sample_rows, nb::arg("logits"), nb::arg("first_position"),
             nb::arg("history") = nb::tuple(),
             nb::sig("def sample_rows(self, logits: object, first_position: int, history: object = ()) -> "
                     "list[Sampled]"),
             "As sample, for the rows of a pass over several tokens: row i is for `first_position` + i, and its "
             "history is `history` without the last len(logits) - 1 - i tokens.")
        .def("__repr__", [](const Sampler& s) { return text("Sampler(", repr(s.sampling()), ")"); });
}

}  // namespace lynx::bindings
