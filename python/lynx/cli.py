"""The command `lynx`: reads arguments, calls `lynx.commands`, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import lynx
from lynx.commands.events import JsonLines, Message, Sink
from lynx.units import parse_bandwidth, parse_endpoint

if TYPE_CHECKING:
    from lynx.policies import Policy

KEY_VARIABLE = "LYNX_KEY_FILE"
DEFAULT_ADDRESS = "127.0.0.1:7471"
DEFAULT_MODES = "bf16,int8,int4,anchor-first,lynx"
INTERRUPTED = 130
_T = TypeVar("_T")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    # SIGTERM ends as Ctrl-C does: nothing is left behind. SIGINT too, where a shell has started us with it ignored.
    _on_signals(_interrupt)
    try:
        try:
            return _run(_parser().parse_args(argv))
        finally:
            _on_signals(signal.SIG_IGN)  # the end has begun; a second signal would only tear it
    except KeyboardInterrupt:
        return INTERRUPTED  # it came while an error was being told


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.run(arguments)
        return code
    except KeyboardInterrupt:
        _report(arguments, "interrupted", "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _mute()
        return 1
    except _user_errors() as e:
        if isinstance(e, _policy_error()) and e.__cause__ is not None:
            traceback.print_exception(e.__cause__)  # of the user's own code
        _report(arguments, type(e).__name__, str(e))
        return 1


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _user_errors() -> tuple[type[BaseException], ...]:
    """What a user can mend: told in a line. All else is a bug and keeps its traceback."""
    from lynx.commands.demo import DemoError
    from lynx.policies import PolicyError

    return (lynx.Error, DemoError, PolicyError, ValueError, OSError, ImportError)


def _policy_error() -> type[BaseException]:
    from lynx.policies import PolicyError

    return PolicyError


def _report(arguments: argparse.Namespace, kind: str, text: str) -> None:
    if not getattr(arguments, "events", False):
        print(f"lynx {arguments.command}: {text}", file=sys.stderr)
        return
    try:
        JsonLines()({"event": "error", "type": kind, "text": text})
    except BrokenPipeError:
        _mute()


def _mute() -> None:
    """Whoever read standard output has gone: nobody is left to tell, at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lynx",
        description="Streams a KV cache from a prefill node to a decode node in bit-planes, significant ones first.",
    )
    parser.add_argument("--version", action="version", version=f"lynx {lynx.__version__}")
    parser.add_argument("--cmake-dir", action=_PrintCMakeDir, nargs=0, help="print the prefix for find_package(lynx)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="what this build is and what it can use here")
    info.add_argument("--json", action="store_true", help="as JSON")
    info.set_defaults(run=_info)

    keygen = commands.add_parser(
        "keygen",
        help="make a pre-shared key for prefill and decode nodes",
        description="Writes a new random key into a new file that you alone may read. Copy it to the other nodes.",
    )
    keygen.add_argument("file", metavar="FILE", help="the file; one that is there already is left as it is")
    keygen.set_defaults(run=_keygen)

    prefill = commands.add_parser(
        "prefill", help="prefill a prompt and send its cache to decode nodes", description="Prefills, then serves."
    )
    _add_address(prefill, "--listen", "where decode nodes connect to; port 0 takes a free one")
    _add_key(prefill)
    prefill.add_argument(
        "--insecure",
        action="store_true",
        help="listen on other addresses than loopback without a key: anyone who reaches the port may read the cache",
    )
    _add_context(prefill)
    _add_common(prefill)
    _add_observing(prefill)
    prefill.add_argument("--once", action="store_true", help="end when the first decode node leaves")
    prefill.set_defaults(run=_prefill)

    decode = commands.add_parser("decode", help="decode from a prefill node's cache, in one or several modes")
    _add_address(decode, "--connect", "the prefill node")
    decode.add_argument("--wait", action="store_true", help="wait for a prefill node that is not there yet")
    _add_key(decode)
    _add_decoding(decode)
    _add_sampling(decode)
    _add_common(decode)
    _add_observing(decode)
    _add_output(decode)
    decode.set_defaults(run=_decode)

    demo = commands.add_parser(
        "demo",
        help="both, on this machine, with a comparison",
        description="Starts a prefill and a decode process and replays one transfer in each mode.",
    )
    _add_key(demo)
    _add_context(demo)
    _add_decoding(demo)
    _add_sampling(demo)
    _add_common(demo, bandwidth="250Mbit")
    _add_observing(demo, "; the decode process takes the one after it")
    _add_output(demo)
    demo.set_defaults(run=_demo)

    plan = commands.add_parser(
        "plan",
        help="predict what each policy brings, by bandwidth",
        description="Simulates one request under each policy: bytes, and times to tokens shown and verified.",
    )
    _add_plan(plan)
    plan.set_defaults(run=_plan)
    return parser


def _add_address(parser: argparse.ArgumentParser, flag: str, about: str) -> None:
    parser.add_argument(
        flag,
        type=_checked(parse_endpoint),
        default=parse_endpoint(DEFAULT_ADDRESS),
        metavar="HOST:PORT",
        help=f"{about} (default {DEFAULT_ADDRESS})",
    )


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file",
        default=os.environ.get(KEY_VARIABLE) or None,
        metavar="FILE",
        help=f"the key that both sides have, as `lynx keygen` makes it (default ${KEY_VARIABLE}, or no key)",
    )


def _add_common(parser: argparse.ArgumentParser, bandwidth: str = "unlimited") -> None:
    parser.add_argument(
        "--model", default="smollm2", metavar="NAME", help="smollm2, a .gguf file, or a directory (default smollm2)"
    )
    parser.add_argument(
        "--provider", default="auto", help="libfabric provider, as `lynx info` lists them (default auto)"
    )
    parser.add_argument(
        "--bandwidth",
        type=_checked(parse_bandwidth),
        default=parse_bandwidth(bandwidth),
        metavar="RATE",
        help=f"at most so much payload, for example 250Mbit or 30MB (default {bandwidth})",
    )
    parser.add_argument("--no-color", action="store_true", help="no colours")
    parser.add_argument("--events", action="store_true", help=argparse.SUPPRESS)


def _add_observing(parser: argparse.ArgumentParser, also: str = "") -> None:
    parser.add_argument(
        "--trace",
        type=_file,
        metavar="FILE",
        help="write what moved when, for https://ui.perfetto.dev (docs/metrics.md)",
    )
    parser.add_argument(
        "--metrics-port",
        type=_port,
        metavar="PORT",
        help=f"answer Prometheus on this port of 127.0.0.1, 0 for a free one{also}",
    )


def _add_context(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context", type=_positive, default=2048, metavar="N", help="tokens of the prompt (default 2048)"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="prefill anew for each request and send the cache while it is computed (default: prefill once, before)",
    )


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=_positive, default=64, metavar="N", help="tokens to decode (default 64)")
    parser.add_argument(
        "--modes",
        type=_modes,
        default=DEFAULT_MODES,
        metavar="LIST",
        help="of bf16, int8, int4, anchor-first, lynx, lynx-ladder, lynx-exact, adaptive "
        f"(default {DEFAULT_MODES}): see docs/policies.md",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help="for mode lynx: layer-ready (default), anchor-first, blocking, ladder, deadline, adaptive, "
        "or module:Class of your own",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=120.0, metavar="SECONDS", help="deadline of each transfer (default 120)"
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling", "the meaning is that of Hugging Face transformers; greedy by default")
    group.add_argument("--temperature", type=_not_negative, default=0.0, metavar="T", help="0 is greedy (default 0)")
    group.add_argument("--top-k", type=_top_k, default=0, metavar="K", help="of the K best tokens (default 0: of all)")
    group.add_argument("--top-p", type=_not_negative, default=1.0, metavar="P", help="of the best with P in all")
    group.add_argument("--min-p", type=_not_negative, default=0.0, metavar="P", help="of those with P of the best's")
    group.add_argument("--repetition-penalty", type=_not_negative, default=1.0, metavar="X", help="default 1: none")
    group.add_argument("--seed", type=_whole, default=0, metavar="N", help="the same seed gives the same text")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="ends the text; may be repeated")


def _sampling(arguments: argparse.Namespace) -> lynx.Sampling:
    return lynx.Sampling(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
        seed=arguments.seed,
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "--model", default="smollm2", metavar="NAME", help="smollm2, a .gguf file, or a directory (default smollm2)"
    )
    model.add_argument(
        "--shape", type=_shape, metavar="LxHxD", help="layers x KV heads x head_dim of a model that is not here"
    )
    parser.add_argument("--context", type=_positive, default=2048, metavar="N", help="tokens (default 2048)")
    parser.add_argument(
        "--bandwidth",
        type=_bandwidths,
        default=_bandwidths("250Mbit"),
        metavar="LIST",
        help="one or several, for example 50Mbit,250Mbit,1Gbit (default 250Mbit)",
    )
    parser.add_argument("--tokens", type=_positive, default=64, metavar="N", help="to decode (default 64)")
    parser.add_argument(
        "--step-ms", type=_seconds, metavar="MS", help="a decode step of one token (default: the model's, measured)"
    )
    parser.add_argument(
        "--token-ms",
        type=_milliseconds,
        metavar="MS",
        help="each further token of a pass (default: measured; with --step-ms 0.15 steps)",
    )
    parser.add_argument(
        "--acceptance",
        type=Path,
        metavar="FILE",
        help='JSON of anchor bits to the chance that a draft is right, for example {"4": 0.96} (default: SmolLM2\'s)',
    )
    parser.add_argument("--exact", action="store_true", help="verify on the exact tier, not on the 8 planes")
    parser.add_argument("--runs", type=_positive, default=8, metavar="N", help="runs to average (default 8)")
    parser.add_argument("--plot", type=_writable, metavar="FILE", help="plot as SVG or PNG; - for bars in the terminal")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    _add_output(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", type=_writable, metavar="FILE", help="write the result as JSON too; - for standard output"
    )


def _checked(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    def parse_or_explain(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as e:
            raise argparse.ArgumentTypeError(str(e)) from None

    return parse_or_explain


def _modes(text: str) -> str:
    from lynx.modes import parse_modes

    return ",".join(mode.name for mode in _checked(parse_modes)(text))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _writable(text: str) -> Path:
    path = Path(text)
    if text != "-" and not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: there is no directory {path.parent}")
    return path


def _file(text: str) -> Path:
    if text == "-":
        raise argparse.ArgumentTypeError("a trace cannot go to standard output: name a file")
    return _writable(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def _not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return number


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _top_k(text: str) -> int:
    return min(_whole(text), 2**32 - 1)  # no vocabulary is larger


def _milliseconds(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0.0") else _seconds(text)


def _bandwidths(text: str) -> list[int]:
    rates = [_checked(parse_bandwidth)(part) for part in text.split(",")]
    if 0 in rates:
        raise argparse.ArgumentTypeError(f"{text!r} leaves nothing to plan: name a bandwidth, for example 250Mbit")
    return rates


def _shape(text: str) -> Any:
    from lynx.model_shapes import parse_shape

    return _checked(parse_shape)(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


class _PrintCMakeDir(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        print(lynx.cmake_dir())
        parser.exit()


def _info(arguments: argparse.Namespace) -> int:
    from lynx.commands.info import collect

    info = collect()
    if arguments.json:
        print(json.dumps(info, indent=2))
        return 0
    for key in ("version", "build", "python", "isa", "libfabric", "cuda", "cmake_dir"):
        print(f"{key:>10}  {info[key]}")
    print(f"{'auto':>10}  {info['auto_provider']}")
    for p in info["providers"]:
        print(f"{'provider':>10}  {p['name']:<16} {'usable' if p['usable'] else p['reason']}")
    return 0


def _keygen(arguments: argparse.Namespace) -> int:
    lynx.PresharedKey.generate_file(arguments.file)
    print(f"{arguments.file}: a new key. Copy it to the other nodes, by a way that nobody else reads, with mode 600")
    return 0


def _key(arguments: argparse.Namespace) -> lynx.PresharedKey | None:
    return lynx.PresharedKey.from_file(arguments.key_file) if arguments.key_file else None


def _with_sink(arguments: argparse.Namespace, run: Callable[[Sink], _T]) -> _T:
    """Run with the output that was asked for, and leave the terminal in order."""
    if arguments.events:
        _end_with_parent()
        return run(JsonLines())
    from lynx.commands.display import make_display

    if getattr(arguments, "json", None) == Path("-"):
        return run(_silent)
    display = make_display(color=not arguments.no_color)
    try:
        return run(display)
    finally:
        display.close()


def _silent(_: Message) -> None:
    """Standard output is for the JSON alone."""


def _end_with_parent() -> None:
    """The parent holds our standard input open; when it closes, we are interrupted."""

    def watch() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def _prefill(arguments: argparse.Namespace) -> int:
    from lynx.commands.prefill import PrefillOptions, run

    host, port = arguments.listen
    options = PrefillOptions(
        host=host,
        port=port,
        context_tokens=arguments.context,
        model=arguments.model,
        provider=arguments.provider,
        bytes_per_second=arguments.bandwidth,
        once=arguments.once,
        live=arguments.live,
        key=_key(arguments),
        insecure=arguments.insecure,
        trace=arguments.trace,
        metrics_port=arguments.metrics_port,
    )
    _with_sink(arguments, lambda emit: run(options, emit))
    return 0


def _decode(arguments: argparse.Namespace) -> int:
    from lynx.commands.decode import DecodeOptions, run
    from lynx.modes import parse_modes

    host, port = arguments.connect
    options = DecodeOptions(
        host=host,
        port=port,
        modes=parse_modes(arguments.modes),
        tokens=arguments.tokens,
        model=arguments.model,
        provider=arguments.provider,
        bytes_per_second=arguments.bandwidth,
        policy=_policy(arguments),
        wait=arguments.wait,
        timeout_s=arguments.timeout,
        sampling=_sampling(arguments),
        stop=arguments.stop,
        key=_key(arguments),
        trace=arguments.trace,
        metrics_port=arguments.metrics_port,
    )
    _write_json(arguments.json, _with_sink(arguments, lambda emit: run(options, emit)))
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from lynx.commands.demo import DemoOptions, run

    _policy(arguments)  # the decode process makes its own; a bad one is told before it is started
    common = ["--model", arguments.model, "--provider", arguments.provider]
    if _key(arguments):  # a bad one is told before the processes are started
        common += ["--key-file", arguments.key_file]
    rate = f"{arguments.bandwidth}B" if arguments.bandwidth else "unlimited"
    decode = ["--tokens", str(arguments.tokens), "--modes", arguments.modes, "--timeout", str(arguments.timeout)]
    if arguments.policy:
        decode += ["--policy", arguments.policy]
    _sampling(arguments)  # here too what is wrong is told before anything is started
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"):
        decode += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    for text in arguments.stop:
        decode.append(f"--stop={text}")  # one word: the text may begin with a dash
    first, second = _metrics_ports(arguments.metrics_port)
    live = ["--live"] if arguments.live else []
    options = DemoOptions(
        prefill=[*common, *first, "--context", str(arguments.context), "--bandwidth", rate, *live],
        decode=[*common, *second, *decode],
        model=arguments.model,
        trace=arguments.trace,
    )
    _write_json(arguments.json, _with_sink(arguments, lambda emit: run(options, emit)))
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from lynx.commands.plan import PlanOptions, read_acceptance, run
    from lynx.commands.plan_display import print_bars, print_plan, write_plot
    from lynx.planning import DEFAULT_ACCEPTANCE

    options = PlanOptions(
        model=arguments.model,
        shapes=arguments.shape,
        context_tokens=arguments.context,
        bandwidths=arguments.bandwidth,
        tokens=arguments.tokens,
        step_s=arguments.step_ms and arguments.step_ms / 1e3,
        token_s=arguments.token_ms if arguments.token_ms is None else arguments.token_ms / 1e3,
        acceptance=read_acceptance(arguments.acceptance) if arguments.acceptance else DEFAULT_ACCEPTANCE,
        exact=arguments.exact,
        runs=arguments.runs,
    )
    told = Console(no_color=arguments.no_color, highlight=False, quiet=arguments.json == Path("-"))
    result = run(options, lambda event: told.print(event["text"], markup=False))
    print_plan(told, result)
    _write_json(arguments.json, result)
    if arguments.plot == Path("-"):
        print_bars(told, result)
    elif arguments.plot:
        try:
            write_plot(arguments.plot, result)
        except ImportError:
            print_bars(told, result)
            print("lynx plan: no plot without matplotlib; run: pip install 'lynx-kv[plot]'", file=sys.stderr)
    return 0


def _metrics_ports(port: int | None) -> tuple[list[str], list[str]]:
    """What the prefill and the decode process are told."""
    if port is None:
        return [], []
    if port == 65535:
        raise ValueError("--metrics-port 65535: there is no port after it for the decode process")
    return ["--metrics-port", str(port)], ["--metrics-port", str(port + 1 if port else 0)]


def _policy(arguments: argparse.Namespace) -> Policy | None:
    """The one asked for, before anything is loaded: can it be made, and is there a use for it?"""
    from lynx.policies import load_policy

    if not arguments.policy:
        return None
    policy = load_policy(arguments.policy)
    if "lynx" not in arguments.modes.split(","):
        raise ValueError(f"--policy {arguments.policy} is for mode lynx, which --modes {arguments.modes} leaves out")
    return policy


def _write_json(path: Path | None, result: dict[str, Any]) -> None:
    if path is None:
        return
    text = json.dumps(result, indent=2) + "\n"
    if path == Path("-"):
        sys.stdout.write(text)
    else:
        path.write_text(text)
