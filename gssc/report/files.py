"""Several files that appear together or not at all."""

import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from gssc.checks import fail


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder: all of them under temporary names first, then each replaces what was there."""
    mark = secrets.token_hex(4)
    temporary = {folder / f".{name}.{mark}": folder / name for name in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for final in temporary.values():
            if final.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{final.name} is a folder")
        for path, content in zip(temporary, contents.values(), strict=True):
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, final in temporary.items():
            os.replace(path, final)
    except OSError as error:
        fail("output folder", "one that can be written", f"{folder} ({error.strerror})")
    finally:
        for path in temporary:
            if path.parent.is_dir():
                path.unlink(missing_ok=True)
