"""What the commands do; `lynx.cli` reads their arguments."""
