#!/usr/bin/env python3
"""tab.py [--setup COMMANDS] SHELL [COMMAND...] -- LINE...

Types each LINE and a press of Tab into an interactive SHELL (bash, zsh or fish) on a pseudo
terminal, and prints the line as it is then, or, if Tab left it alone, what a second press shows,
the candidates of a line joined by a blank. COMMAND starts the shell (default: without the user's
files). COMMANDS are run in it first.
"""

import os
import pty
import re
import select
import sys
import termios
import time

# Started without anybody's files; keys that show and clear what is typed.
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        r"""bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; bind 'set page-completions off';"""
        r""" _show() { printf '<<%s>>\n' "$READLINE_LINE"; }; bind -x '"\C-xp": _show'""",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        r"""unsetopt beep list_beep prompt_sp zle_bracketed_paste; unset zle_bracketed_paste; setopt no_auto_menu; LISTMAX=0;"""
        r""" _show() { print -r -- "<<$BUFFER>>" }; zle -N _show; bindkey '^Xp' _show; bindkey '^U' kill-whole-line""",
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        r"""function fish_prompt; end; function _show; printf '<<%s>>\n' (commandline); end; bind \cxp _show;"""
        r""" bind \cu 'commandline ""'""",
    ),
}
TIMEOUT_S = 30


class Terminal:
    def __init__(self, command):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ.update(TERM="dumb" if "fish" not in command[0] else "xterm", PS1="", LC_ALL="C.UTF-8", COLUMNS="300", LINES="60")
            os.execvp(command[0], command)
        termios.tcsetwinsize(self.fd, (60, 300))

    def send(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, pattern):
        """All that comes until a match of `pattern`, and the match."""
        text, end = "", time.monotonic() + TIMEOUT_S
        while not (found := re.search(pattern, text, re.S)):
            left = end - time.monotonic()
            if left < 0 or not select.select([self.fd], [], [], left)[0]:
                sys.exit(f"tab: the shell said only {text!r}")
            try:
                text += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                sys.exit(f"tab: the shell has ended: {text!r}")
        return text[: found.start()], found

    def line(self):
        """What else was shown, and the line that is being typed."""
        self.send("\x18p")
        before, found = self.read_until(r"<<(.*?)>>")
        return before, found[1]


def main():
    arguments = sys.argv[1:]
    setup = ""
    if arguments[:1] == ["--setup"]:
        setup, arguments = arguments[1], arguments[2:]
    if "--" not in arguments or not arguments or arguments[0] not in SHELLS:
        sys.exit(__doc__)
    at = arguments.index("--")
    shell, command, lines = arguments[0], arguments[1:at], arguments[at + 1 :]
    usual, keys = SHELLS[shell]
    terminal = Terminal(command or usual)
    time.sleep(0.2)
    # The words are parted, so that the echo of the command is not taken for its output.
    for one in filter(None, [keys, setup]):
        terminal.send(one + "; echo rea''dy\n" if shell != "fish" else one + "; echo rea''dy\r")
        terminal.read_until(r"ready\r?\n")
    for typed in lines:
        terminal.line()
        terminal.send(typed + "\t")
        _, now = terminal.line()
        if now == typed:
            terminal.send("\t" if shell == "zsh" else "\t\t")
            shown, _ = terminal.line()
            shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>(][B0]?|\r|\x07", "", shown)
            now = " ".join(shown.replace("\n", " ").replace(typed, " ").split())
        print(now, flush=True)
        terminal.send("\x15")
    os.close(terminal.fd)


main()
