"""Where people's shells, desktops, editors and agents start from: folders below a home that are no place for
a command to write in, each with what obeys it.

Names only; nothing is looked up here. Next: roots.py (refuses them as roots), protected.py (names anywhere).
"""

from collections.abc import Mapping

_SHELL = "a shell starts from it"
_ON_PATH = "programs that are run by name lie in it"
_CODE = "programs load code from it"
_DESKTOP = "the session starts programs from it"
_EDITOR = "an editor starts from it"
_AGENT = "an agent takes orders and hooks from it"
_GIT = "git runs what it names"
_TERMINAL = "a terminal program runs what it names"

START_PLACES: Mapping[str, str] = {
    **dict.fromkeys((
        ".bashrc.d", ".bash_completion.d", ".bash.d", ".profile.d", ".zsh", ".zsh.d", ".zshrc.d", ".zfunc",
        ".oh-my-zsh", ".oh-my-bash", ".zprezto", ".zinit", ".antigen", ".config/fish", ".config/zsh",
        ".config/bash", ".config/nushell", ".config/powershell", ".config/elvish", ".config/xonsh",
        ".config/environment.d", ".config/direnv", ".local/share/bash-completion", ".local/share/fish",
        ".local/share/direnv",
    ), _SHELL),
    **dict.fromkeys((
        "bin", ".bin", ".local/bin", ".local/sbin", ".cargo/bin", ".cargo/env", "go/bin", ".go/bin", ".nvm",
        ".fnm", ".n/bin", ".volta", ".pyenv", ".rbenv", ".rvm", ".asdf", ".jenv", ".goenv", ".sdkman",
        ".rustup", ".bun/bin", ".deno/bin", ".dotnet/tools", ".krew/bin", ".yarn/bin", ".npm-global",
        ".npm-packages", ".composer/vendor/bin", ".config/composer/vendor/bin", ".config/yarn/global",
        ".linuxbrew", ".nix-profile", ".local/share/mise", ".local/share/pnpm", ".local/share/fnm",
        ".local/share/pipx", ".local/pipx", ".local/share/uv", ".config/mise", ".config/nix",
        ".config/nixpkgs", ".config/home-manager", ".pulumi/bin", ".foundry/bin", ".ghcup/bin",
        ".cabal/bin", ".juliaup/bin", ".tfenv", ".poetry/bin", ".fzf", ".atuin/bin",
    ), _ON_PATH),
    **dict.fromkeys((
        ".local/lib", ".config/pip", ".pip", ".config/uv", ".gem", ".local/share/gem", ".cargo/config.toml",
        ".cargo/config", ".m2/settings.xml", ".m2/extensions.xml", ".gradle/init.d", ".gradle/init.gradle",
        ".gradle/gradle.properties", ".ipython", ".jupyter", ".config/ipython", ".julia/config",
        ".node_modules", ".node_libraries", ".config/gdb", ".yarn/plugins", ".config/yarn", ".R",
        ".config/R", ".sbt", ".clojure", ".lein", ".ghc", ".stack/config.yaml", ".config/cabal",
        ".config/pypoetry", ".cache/pre-commit", ".cache/node/corepack",
    ), _CODE),
    **dict.fromkeys((
        ".config/autostart", ".config/autostart-scripts", ".config/systemd", ".local/share/systemd",
        ".local/share/applications", ".local/share/dbus-1", ".local/share/kservices5",
        ".local/share/nautilus", ".local/share/nemo", ".local/share/gnome-shell", ".local/share/plasma",
        ".local/share/flatpak", ".local/share/xsessions", ".config/plasma-workspace", ".config/hypr",
        ".config/sway", ".config/i3", ".i3", ".config/awesome", ".config/openbox", ".config/bspwm",
        ".config/sxhkd", ".config/qtile", ".config/river", ".config/niri", ".config/labwc",
        ".config/waybar", ".config/rofi", ".config/polybar", ".xmonad", ".fluxbox", ".fvwm",
        ".config/containers", ".config/upstart", ".config/cron", ".config/user-tmpfiles.d",
        ".config/xdg-desktop-portal", ".kde/Autostart", ".kde4/Autostart", "Library/LaunchAgents",
        "Library/Services", "Library/Scripts", "Library/Application Support/iTerm2", "Library/QuickLook",
        "Library/Preferences", "Library/Workflows", "Library/Input Methods",
    ), _DESKTOP),
    **dict.fromkeys((
        ".config/nvim", ".local/share/nvim", ".vim", ".config/vim", ".emacs.d", ".config/emacs", ".doom.d",
        ".config/doom", ".spacemacs.d", ".config/Code", ".config/Code - OSS", ".config/VSCodium",
        ".config/Cursor", ".config/Windsurf", ".vscode-server", ".vscode-oss", ".vscode-server-insiders",
        ".cursor-server", ".windsurf-server", ".config/helix", ".config/zed", ".local/share/zed",
        ".config/sublime-text", ".config/JetBrains", ".local/share/JetBrains", ".config/micro",
        ".config/kak", ".config/lapce", ".config/lf", ".config/ranger", ".config/yazi",
        "Library/Application Support/Code", "Library/Application Support/Cursor",
        "Library/Application Support/JetBrains",
    ), _EDITOR),
    **dict.fromkeys((
        ".config/claude", ".config/opencode", ".local/share/opencode", ".copilot",
        ".config/github-copilot", ".config/goose", ".local/share/goose",
        ".codeium", ".cline", ".qwen", ".amp", ".config/amp", ".factory", ".crush",
        ".config/crush", ".local/share/crush", ".augment", ".trae", ".openhands", ".aider", ".config/aider",
        ".pi", ".hermes", ".openclaw", ".junie", ".grok", ".kimi", ".mcp", ".config/mcp",
        "Library/Application Support/Claude",
    ), _AGENT),
    **dict.fromkeys((
        ".config/git", ".git-templates", ".git-template", ".git_template", ".githooks", ".git-hooks",
        ".config/gh", ".config/glab-cli", ".config/jj", ".config/lazygit", ".config/hub",
    ), _GIT),
    **dict.fromkeys((
        ".config/tmux", ".tmux", ".config/zellij", ".config/kitty", ".config/alacritty", ".config/wezterm",
        ".config/ghostty", ".config/foot", ".config/terminator", ".config/screen", ".screenlayout",
        ".byobu", ".config/byobu", ".weechat", ".config/weechat", ".irssi", ".mutt", ".config/mutt",
        ".config/neomutt", ".config/mpv", ".w3m", ".elinks",
    ), _TERMINAL),
}  # fmt: skip
"""Relative to a home folder, whether there or not. A root may not be one of these, lie in one or hold one."""

AGENT_WORKPLACES = (
    r"/(\.(?:claude|codex|cursor|gemini|windsurf|opencode)/(?:worktrees|(?:antigravity/)?scratch))/[^/]+/"
)
"""Where agents keep check-outs to work in, inside a folder of their own that is obeyed."""
