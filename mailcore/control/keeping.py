"""Answers the operations about kept files: checks and keeps certificates, CAs and maps, makes keys, tells where each is used.

A file is kept before a setting refers to it, and the setting is changed with ``settings_change``: so each change of a file has
the check, the difference, the reason and the history that other changes have. While one is written, no setting changes.

- law: kept-key-stays-here. No answer, no fault and no file that others may read has a part of a private key.

Keeps law: kept-files-never-change (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from types import ModuleType
from typing import Any

from mailcore.bounds import BadValue
from mailcore.config import values
from mailcore.config.dkim import domain_name, selector_name
from mailcore.config.kept_files import CA, CERTIFICATE, DKIM, KEY, MAP, Reference, kind_of, reference_of, references_in
from mailcore.config.settings import Settings
from mailcore.control.kept_maps import text_faults
from mailcore.control.kept_store import KeptStore, NotKept
from mailcore.control.kept_use import (
    changes_of_dkim,
    changes_of_place,
    changes_of_rows,
    changes_without,
    renewals,
    used_by,
)
from mailcore.control.managing import Managing
from mailcore.control.operations import Answers
from mailcore.control.protocol.kept import (
    TEXT_MAX,
    Kept,
    KeptArguments,
    KeptFile,
    KeptMade,
    KeptMakeArguments,
    KeptPutArguments,
    KeptRemoveArguments,
    KeptText,
    KeptUse,
    KeptUseArguments,
)
from mailcore.control.protocol.operation import Arguments
from mailcore.control.protocol.settings import KeyFault
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code

__all__ = ["Keeping"]

SELECTOR = "._domainkey."  # in the name of a DKIM key: the name of its record
ELSEWHERE = (  # of a file that is removed at one of several nodes
    "other nodes that have the file keep it: give waypost kept remove at each other node; the database keeps it, encrypted,"
    " while the history of settings names it"
)


class Keeping:
    """Answers the operations about kept files."""

    def __init__(self, view: View, settings: Settings, managing: Managing) -> None:
        self._view = view
        self._settings = settings
        self._managing = managing
        self._store = KeptStore(settings.home)
        self.answers: dict[str, Answers] = {
            "kept": self._list,
            "kept_text": self._text,
            "kept_put": self._put,
            "kept_make": self._make,
            "kept_use": self._use,
            "kept_remove": self._remove,
        }

    async def _list(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield await self._view.in_thread(self._files)

    async def _text(self, session: Session, arguments: KeptArguments) -> AsyncGenerator[Any, None]:
        reference = _reference(arguments.file)
        if reference.kind not in (MAP, CERTIFICATE, CA):
            raise NotKept("a private key is never shown", code=Code.FORBIDDEN)
        content = await self._view.in_thread(self._store.read, reference)
        yield KeptText(text=content.decode("utf-8", "replace")[:TEXT_MAX])

    async def _put(self, session: Session, arguments: KeptPutArguments) -> AsyncGenerator[Any, None]:
        async with self._managing.lock:
            yield await self._view.in_thread(self._handed_in, arguments)

    async def _make(self, session: Session, arguments: KeptMakeArguments) -> AsyncGenerator[Any, None]:
        async with self._managing.lock:
            yield await self._view.in_thread(self._made, arguments)

    async def _use(self, session: Session, arguments: KeptUseArguments) -> AsyncGenerator[Any, None]:
        yield await self._view.in_thread(self._changes, arguments)

    async def _remove(self, session: Session, arguments: KeptRemoveArguments) -> AsyncGenerator[Any, None]:
        async with self._managing.lock:
            yield await self._view.in_thread(self._removed, arguments)

    # -- looking

    def _files(self) -> Kept:
        document, states = self._managing.documents()
        used = used_by(document)
        history: dict[Reference, int] = {}
        for _, state in states:
            for reference in set(references_in(state)):
                history[reference] = history.get(reference, 0) + 1
        publics = self._public_keys()
        found = []
        for reference, status in self._store.files():
            file = KeptFile(
                file=str(reference), kind=reference.kind, name=reference.name, size_bytes=status.st_size, at=status.st_mtime,
                used=used.get(reference, []), in_history=history.get(reference, 0),
            )  # fmt: skip
            self._describe(reference, file, publics)
            found.append(file)
        found.sort(key=lambda each: (each.kind, each.name, -each.at))
        return Kept(files=found)

    def _describe(self, reference: Reference, file: KeptFile, publics: dict[bytes, Reference]) -> None:
        content = _content()
        try:
            data = self._store.read(reference)
            if reference.kind == CERTIFICATE:
                chain = content.chain_of(data.decode())
                try:
                    file.certificate = content.certificate_facts(chain, time.time())
                except content.ContentFault as fault:  # it has expired since it was handed in
                    file.fault = str(fault)
                    begins = chain[0].not_valid_before_utc.timestamp()
                    file.certificate = content.certificate_facts(chain, begins)
                file.certificate.has_key = content.public_of(chain[0]) in publics
            elif reference.kind == DKIM:
                selector, _, domain = reference.name.partition(SELECTOR)
                file.dkim = content.dkim_facts(content.load_dkim(data), domain, selector)
            elif reference.kind == MAP:
                file.lines = sum(
                    bool(line.strip()) and not line.lstrip().startswith(b"#") for line in data.splitlines()
                )
        except (NotKept, ValueError) as error:
            file.fault = str(error)

    def _public_keys(self) -> dict[bytes, Reference]:
        """Returns the kept private keys by their public half, the newest one of the same."""
        content, found = _content(), dict[bytes, Reference]()
        kept = sorted(self._store.files(), key=lambda each: each[1].st_mtime)
        for reference, _ in kept:
            if reference.kind == KEY:
                with contextlib.suppress(NotKept, ValueError):
                    found[content.public_of(self._store.read(reference))] = reference
        return found

    # -- keeping

    def _handed_in(self, arguments: KeptPutArguments) -> KeptMade:
        self._tidy()
        try:
            if arguments.kind == MAP:
                return self._map(arguments)
            return self._certificate(arguments)
        except _content().ContentFault as fault:
            return KeptMade(faults=[KeyFault(key=fault.argument, reason=str(fault))])
        except ValueError as error:
            return KeptMade(faults=[KeyFault(key="name", reason=str(error))])

    def _certificate(self, arguments: KeptPutArguments) -> KeptMade:
        content = _content()
        chain = content.chain_of(arguments.text)
        if arguments.kind == CA:
            return self._kept(CA, arguments.name, content.pem_of(chain), check=arguments.check)
        key = content.key_of(arguments.key) if arguments.key.strip() else b""
        facts = content.certificate_facts(chain, time.time())
        public = content.public_of(chain[0])
        if key and content.public_of(key) != public:
            raise content.ContentFault("key", "does not belong to the first certificate: their public keys differ")
        if not key and public not in self._public_keys():
            raise content.ContentFault("key", "must be given: no key that is kept here belongs to this certificate")
        made = self._kept(CERTIFICATE, arguments.name, content.pem_of(chain), check=arguments.check)
        if key and not arguments.check:
            self._store.put(KEY, arguments.name, key)
        facts.has_key = True
        if made.facts is not None:
            made.facts.certificate = facts
        return made

    def _map(self, arguments: KeptPutArguments) -> KeptMade:
        text = arguments.text.replace("\r\n", "\n").removeprefix("\ufeff")
        data = (text if text.endswith("\n") or not text else f"{text}\n").encode()
        reference = self._store.put(MAP, arguments.name, data)  # nothing refers to it yet
        faults = text_faults(self._store.path(reference), arguments.form, self._settings)
        document, states = self._managing.documents()
        known = {each for state in (document, *(state for _, state in states)) for each in references_in(state)}
        if (faults or arguments.check) and reference not in known:
            self._store.remove(reference)
        if faults:
            return KeptMade(faults=faults)
        return self._kept(MAP, arguments.name, data, check=arguments.check)

    def _kept(self, kind: str, name: str, data: bytes, *, check: bool = False, request: str = "") -> KeptMade:
        reference = reference_of(kind, name, data) if check else self._store.put(kind, name, data)
        file = KeptFile(
            file=str(reference), kind=kind, name=reference.name, size_bytes=len(data), at=time.time(), used=[],
        )  # fmt: skip
        if not check:
            self._describe(reference, file, self._public_keys() if kind == CERTIFICATE else {})
        return KeptMade(faults=[], file="" if check else str(reference), facts=file, request=request)

    def _made(self, arguments: KeptMakeArguments) -> KeptMade:
        self._tidy()
        content = _content()
        try:
            if arguments.kind == DKIM:
                return self._new_dkim(arguments)
            names = [_checked("names", values.server_name, name) for name in arguments.names]
            if not names:
                return KeptMade(
                    faults=[KeyFault(key="names", reason="must have one name or more, such as mail.example.org")]
                )
            if arguments.kind == "request":
                request, key = content.new_request(names)
                self._store.put(KEY, names[0], key)
                return KeptMade(faults=[], request=request.decode())
            certificate, key = content.new_certificate(names, arguments.days, time.time())
            self._store.put(KEY, names[0], key)
            return self._kept(CERTIFICATE, names[0], certificate)
        except content.ContentFault as fault:
            return KeptMade(faults=[KeyFault(key=fault.argument, reason=str(fault))])

    def _new_dkim(self, arguments: KeptMakeArguments) -> KeptMade:
        domain = _checked("domain", domain_name, arguments.domain)
        selector = _checked("selector", selector_name, arguments.selector)
        name = f"{selector}{SELECTOR}{domain}"
        document, _ = self._managing.documents()
        rows = document.get(DKIM, [])
        taken = any(
            isinstance(row, dict) and (row.get("domain"), row.get("selector")) == (domain, selector)
            for row in (rows if isinstance(rows, list) else [])
        ) or any(reference.kind == DKIM and reference.name == name for reference, _ in self._store.files())
        if taken:
            raise _content().ContentFault("selector", f"must be another one; {domain} has a key {selector} already")
        try:
            return self._kept(DKIM, name, _content().new_dkim(arguments.algorithm).pem)
        except ValueError as error:
            raise _content().ContentFault("domain", str(error)) from None

    # -- using

    def _changes(self, arguments: KeptUseArguments) -> KeptUse:
        reference = _reference(arguments.file)
        document, _ = self._managing.documents()
        if arguments.remove:
            return KeptUse(changes=changes_without(document, [reference, *self._keys_of(reference)]))
        self._store.read(reference)
        place = arguments.place
        if reference.kind == DKIM and place in ([], [DKIM]):
            selector, _, domain = reference.name.partition(SELECTOR)
            return KeptUse(
                changes=changes_of_dkim(document, reference, domain, selector, subdomains=arguments.subdomains)
            )
        keys = self._keys_of(reference)
        if reference.kind == CERTIFICATE and not keys:
            raise NotKept(f"{reference}: its key is not kept here")
        if not place:
            changes = renewals(document, [reference, *keys[:1]]) or []
            if not changes:
                raise NotKept(
                    f"no setting uses an earlier {reference.name}; say where it is to be used", code=Code.INVALID
                )
            return KeptUse(changes=changes)
        if place == [CERTIFICATE] and reference.kind == CERTIFICATE:
            names = [_checked("names", values.server_name, name) for name in arguments.names] or list(
                self._names(reference)
            )
            return KeptUse(changes=changes_of_rows(document, reference, keys[0], names))
        if kind_of(tuple(place)) != reference.kind or place[0] == CERTIFICATE:
            raise NotKept(f"{'.'.join(place)} does not name a file of the kind {reference.kind}", code=Code.INVALID)
        changes = changes_of_place(document, place, reference, keys[0] if keys else None, patterns=arguments.patterns)
        return KeptUse(changes=changes)

    def _keys_of(self, reference: Reference) -> list[Reference]:
        """Returns the kept private key of a certificate, in a list; without one, nothing."""
        if reference.kind != CERTIFICATE:
            return []
        content = _content()
        with contextlib.suppress(NotKept, ValueError):
            found = self._public_keys().get(
                content.public_of(content.chain_of(self._store.read(reference).decode())[0])
            )
            return [] if found is None else [found]
        return []

    def _names(self, reference: Reference) -> Sequence[str]:
        content = _content()
        return list(content.names_of(content.chain_of(self._store.read(reference).decode())[0]))

    def _removed(self, arguments: KeptRemoveArguments) -> KeptMade:
        reference = _reference(arguments.file)
        document, _ = self._managing.documents()
        if used := used_by(document).get(reference):
            raise NotKept(f"{reference} is used by {', '.join(used)}")
        self._store.read(reference)
        keys = self._only_of(reference, set(used_by(document)))
        self._store.remove(reference)
        for key in keys:
            self._store.remove(key)
        return KeptMade(faults=[], elsewhere=ELSEWHERE if self._settings.nodes.is_on else "")

    def _only_of(self, reference: Reference, used: set[Reference]) -> list[Reference]:
        """Returns the private keys of a certificate that no setting and no other kept certificate needs."""
        others = [each for each, _ in self._store.files() if each.kind == CERTIFICATE and each != reference]
        needed = used.union(*(self._keys_of(each) for each in others))
        return [key for key in self._keys_of(reference) if key not in needed]

    def _tidy(self) -> None:
        """Removes what neither a setting nor an earlier state of them needs."""
        document, states = self._managing.documents()
        left: dict[Reference, float] = {}
        for (_, state), (until, _) in zip(states, [*states[1:], (time.time(), {})], strict=False):
            for reference in references_in(state):
                left[reference] = max(until, left.get(reference, 0.0))
        self._store.tidy(set(used_by(document)), left)


def _content() -> ModuleType:
    """Returns the module that looks into certificates and keys: its library takes 10 MB, and is needed for these only."""
    from mailcore.control import kept_content

    return kept_content


def _reference(text: str) -> Reference:
    """Raises NotKept."""
    found = Reference.parse(text)
    if found is None:
        raise NotKept("must be a kept file, kept:KIND/NAME.DIGEST, as waypost kept list shows it", code=Code.INVALID)
    return found


def _checked(argument: str, read: Any, text: str) -> str:
    try:
        return str(read(text))
    except BadValue as error:
        raise _content().ContentFault(argument, error.reason) from None
