"""`env`: the variables that send a client through the proxy, in five spellings, and their inverse.

The marker is printed only for a proxy that has answered. Next: sandbox/environment.py (the variables),
variable_formats.py (the spellings), data_port.py (asks the proxy).
"""

import argparse
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address

from egress_proxy.cli.data_port import answers_as_proxy
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.output import say
from egress_proxy.cli.variable_formats import Format, render, render_unset
from egress_proxy.core.host import Host, HostError, Target, parse_authority
from egress_proxy.sandbox.environment import MARKER, PROXY_NAMES, proxy_variables

_SCHEME = "http://"


def env(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    form = Format.JSON if arguments.json else Format(arguments.format)
    if arguments.unset:
        print(render_unset(PROXY_NAMES, form), end="")
        return ExitCode.OK
    target = _proxy(arguments, environ)
    confined = not arguments.no_marker and answers_as_proxy(target)
    variables = proxy_variables(
        f"{_SCHEME}{target}", confined=confined, loopback_direct=arguments.no_proxy_loopback
    )
    print(render(variables, form), end="")
    if confined and arguments.no_proxy_loopback:
        say("NO_PROXY stays empty: with the marker nothing is exempt; --no-marker leaves that out")
    if confined or arguments.no_marker:
        return ExitCode.OK
    say(
        f"no proxy answers at {target}, so {MARKER} is left out; start it with `egress-proxy serve`,"
        " or name it with --proxy HOST:PORT"
    )
    return ExitCode.FAILURE


def _proxy(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Target:
    """The data port: --proxy, else where the settings have it listen."""
    if arguments.proxy is not None:
        text = arguments.proxy.removeprefix(_SCHEME).removesuffix("/")
        try:
            return parse_authority(text)
        except HostError as error:
            raise VerbFailed(ExitCode.USAGE, f"--proxy must be HOST:PORT: {error}") from None
    # Settings cost a tenth of a second, and --proxy does without.
    from egress_proxy.cli.service_checks import bind_of
    from egress_proxy.settings.load import load

    bind = bind_of(load({}, environ, arguments.config))
    if bind.port == 0:
        raise VerbFailed(
            ExitCode.USAGE,
            "bind has port 0: name the port that serve printed as EGRESS_PROXY_PORT, with --proxy HOST:PORT",
        )
    return Target(_reachable(bind.address), bind.port)


def _reachable(address: IPv4Address | IPv6Address) -> Host:
    """What a client on this machine connects to: nobody can connect to 0.0.0.0 everywhere."""
    if not address.is_unspecified:
        return address
    return IPv4Address("127.0.0.1") if isinstance(address, IPv4Address) else IPv6Address("::1")
