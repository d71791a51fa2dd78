"""Reads a multipart form: the audio goes to its spool, the few other fields to memory."""

from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, MultipartReader, hdrs
from aiohttp import web as aioweb
from aiohttp.http_exceptions import HttpProcessingError

from core.errors import PayloadTooLarge, RequestError
from core.http.client_connection import ClientDisconnected
from core.http.routes import BROKEN_FORM
from media.files.upload_spool import UploadSpool

FORM = "multipart/form-data"
FILE_FIELD = "file"

MAX_FIELD_BYTES = 64 * 1024
"Largest field in bytes. A long prompt has 2 KiB."

MAX_REFERENCE_BYTES = 1536 * 1024
"""Largest recording of a speaker's voice in bytes, as a data URL: 10 s of 16-bit sound at 48 kHz
have 1250 KiB."""

LONG_FIELDS = {"known_speaker_references": MAX_REFERENCE_BYTES}
"Largest size in bytes of fields that may be longer than MAX_FIELD_BYTES, by their names."

MAX_OTHER_FIELDS_BYTES = 6 * 1024 * 1024
"""Largest size in bytes of all fields except the audio: four voices. Ignored fields count, too."""

MAX_PARTS = 1000
"""Largest number of parts of a form, the same as in aiohttp. A request with a hundred keywords has
a hundred parts."""

_CHUNK_BYTES = 64 * 1024


@dataclass(slots=True)
class AudioForm:
    """A form that was read; its audio is in the spool."""

    fields: list[tuple[str, str]] = field(default_factory=list)
    "Name and text of each known field."
    other_fields: list[tuple[str, str]] = field(default_factory=list)
    "Name and text of the others, for another server. Bytes that are no text are replaced."
    file_name: str = ""
    "Name of the audio file as the client sent it; empty: it sent none."
    file_type: str = ""
    "Content type of the audio as the client sent it; empty: it sent none."


async def read_form(
    request: aioweb.Request,
    spool: UploadSpool,
    is_known: Callable[[str], bool],
    *,
    file: str = FILE_FIELD,
) -> AudioForm:
    """Reads the form to its end.

    The bytes of the part `file` are in `spool` then. Raises RequestError unsupported_media_type,
    invalid_form, missing_required_parameter, upload_stalled; PayloadTooLarge; Overloaded;
    ClientDisconnected.
    """
    if request.content_type != FORM:
        raise RequestError(f"The body must be {FORM}.", code="unsupported_media_type")
    try:
        return await _MultipartReader(await request.multipart(), spool, is_known, file).read()
    except (*BROKEN_FORM, HttpProcessingError, aioweb.RequestPayloadError) as exc:
        raise _invalid(f"The form cannot be read: {str(exc)[:200]}.") from exc
    except OSError as exc:
        raise ClientDisconnected from exc


class _MultipartReader:
    """Reads one form, within the limits."""

    def __init__(
        self, parts: MultipartReader, spool: UploadSpool, is_known: Callable[[str], bool], file: str
    ) -> None:
        self._parts, self._spool, self._is_known = parts, spool, is_known
        self._file = file
        self._other_fields_bytes = self._part_count = 0

    async def read(self) -> AudioForm:
        form = AudioForm()
        has_file = False
        while (part := await self._next_part()) is not None:
            name = _name_of(part)
            if name == self._file and not has_file:
                has_file = True
                form.file_name = (part.filename or "").encode(errors="replace").decode()
                form.file_type = part.headers.get(hdrs.CONTENT_TYPE, "")
                await self._store_file(part)
            elif name == self._file:
                raise _invalid(f"The form has more than one '{self._file}'.", self._file)
            else:
                text = await self._read_text(part, name)
                fields = form.fields if self._is_known(name) else form.other_fields
                fields.append((name, text))
        if not has_file:
            raise RequestError(
                f"Missing required parameter: '{self._file}', the audio.",
                code="missing_required_parameter",
                param=self._file,
            )
        return form

    async def _next_part(self) -> BodyPartReader | None:
        part = await self._parts.next()
        if isinstance(part, MultipartReader):
            raise _invalid("A part of the form is a nested form.")
        if part is not None:
            self._part_count += 1
            if self._part_count > MAX_PARTS:
                raise PayloadTooLarge(f"the form has more than {MAX_PARTS} parts, the limit")
            self._count_bytes(
                sum(len(header) + len(value) for header, value in part.headers.items())
            )
        return part

    async def _store_file(self, part: BodyPartReader) -> None:
        while not part.at_eof():
            await self._spool.write(await part.read_chunk(_CHUNK_BYTES))

    async def _read_text(self, part: BodyPartReader, name: str) -> str:
        """Returns the text of a field. Only known fields have a limit of their own and must be
        text."""
        data, is_known = bytearray(), self._is_known(name)
        max_bytes = LONG_FIELDS.get(name.partition("[")[0], MAX_FIELD_BYTES)
        while not part.at_eof():
            chunk = await part.read_chunk(_CHUNK_BYTES)
            self._count_bytes(len(chunk))
            data += chunk
            if is_known and len(data) > max_bytes:
                raise PayloadTooLarge(
                    f"'{name}' has more than {max_bytes} bytes, the limit", param=name
                )
        return data.decode(errors="strict" if is_known else "replace")

    def _count_bytes(self, size_bytes: int) -> None:
        self._other_fields_bytes += size_bytes
        if self._other_fields_bytes > MAX_OTHER_FIELDS_BYTES:
            raise PayloadTooLarge(
                f"the fields other than '{self._file}' have more than"
                f" {MAX_OTHER_FIELDS_BYTES} bytes, the limit"
            )


def _name_of(part: BodyPartReader) -> str:
    """Returns the part's name. Raises RequestError if it is not text, because errors repeat it."""
    name = part.name or ""
    if any("\ud800" <= char <= "\udfff" for char in name):
        raise _invalid("The name of a part is not UTF-8.")
    return name


def _invalid(message: str, param: str | None = None) -> RequestError:
    return RequestError(message, code="invalid_form", param=param)
