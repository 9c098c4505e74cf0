"""Where an encoder is on this machine: a name of ours, a folder, or a name on the hub."""

from pathlib import Path

from longform.conversion.shipped import named_folder


def local_source(source: str | Path) -> str:
    """Where an encoder is: of a name of ``longform.conversion.shipped`` its folder, made if it is not there.

    Raises ConversionError where the encoder that the adapter is for is neither installed nor to be had from the hub.
    """
    folder = named_folder(source)
    if folder is not None and not folder.is_dir():
        from longform.conversion.convert import make_shipped  # its import takes seconds, and once is enough

        make_shipped(str(source), folder)
    return str(folder or source)
