"""Where keys and tokens lie below a home folder: what a confined command must not read.

Names only. Next: masks.py (finds them), roots.py (refuses the folders among them as roots).
"""

SECRET_NAMES = (
    ".ssh", ".aws", ".gnupg", ".netrc", ".config/gh", ".config/gcloud", ".azure", ".kube", ".docker",
    ".npmrc", ".pypirc", ".git-credentials", ".config/git/credentials", ".cargo/credentials",
    ".cargo/credentials.toml", ".pgpass", ".vault-token", ".password-store", ".local/share/keyrings",
)  # fmt: skip
"""Relative to the home folder."""
