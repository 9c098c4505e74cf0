"""Where an encoder is on this machine: a name of ours, a folder, or a name on the hub."""

from pathlib import Path

from longform.choices import did_you_mean
from longform.conversion.shipped import BUNDLED, named_folder, shipped
from longform.errors import ConversionError


def local_source(source: str | Path) -> str:
    """Where an encoder is: of a name of ``longform.conversion.shipped`` its folder, made if it is not there.

    Raises ConversionError where the encoder that the adapter is for is neither installed nor to be had from the hub.
    """
    folder = named_folder(source)
    if folder is not None and not folder.is_dir():
        from longform.conversion.convert import make_shipped  # its import takes seconds, and once is enough

        make_shipped(str(source), folder)
    return str(folder or source)


def path_of(name: str | Path) -> str:
    """Folder of an encoder that comes with Longform, for libraries that take a path.

    ``name``: "minilm-16k", or "bundled" (all-MiniLM-L6-v2). The folder is built on first use. A folder of your own is
    returned as it is. Load it after ``import longform``:

        SentenceTransformer(longform.path_of("minilm-16k"))

    Raises ConversionError for a name that is neither, and where the original of "minilm-16k" cannot be had.
    """
    if named_folder(name) is None and not Path(name).is_dir():
        known = [BUNDLED, *shipped()]
        raise ConversionError(
            f'"{name}" is neither a folder nor one of {", ".join(known)}{did_you_mean(str(name), known)}'
        )
    return local_source(name)
