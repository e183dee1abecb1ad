"""`mlcbuild explain`: why actions would run, ran, or have another key on another machine."""
