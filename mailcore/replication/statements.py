"""The statements of the store: the text, and the types of the parameters in their order.

Each one that writes returns whether its commit is kept by two servers when it returns (``KEPT``): the settings as this very
statement saw them. A server reads its configuration again between two statements, never within one.

Keeps law: fenced-by-its-row, law: drop-with-its-record (docs/laws.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mailcore.replication.values import BYTEA, BYTEAS, CHAR, CHARS, INT8, INT8S, TEXT, TEXTS, Encoder, encoder

__all__ = [
    "ASK", "AUTHORITY_MAKE", "AUTHORITY_READ", "AUTHORITY_REPLACE", "BEGIN", "BEGIN_AGAIN", "CHUNKS", "CLOSE", "CLOSE_HELD",
    "COMMIT", "COMMIT_ONE", "CONFIRM", "FETCH", "FETCH_MARKS", "FREE_CHUNKS", "FREE_STATES", "FREE_WRITERS",
    "GIVER_LEAVE", "GIVER_MAKE", "GIVER_READ", "GIVER_RENEW", "GIVER_TAKE", "GIVE_UP", "HAND_OVER", "KEPT_ADD", "KEPT_OLD",
    "KEPT_READ", "KEPT_REMOVE", "KEPT_TOUCH", "LETTERS_REMOVE", "LETTER_MAKE", "LETTER_READ", "LETTER_TAKE",
    "LIST", "LOOK", "NODE_BEAT", "NODE_CONFIRM", "NODE_DRAINED", "NODE_LIST", "NODE_SET", "NODE_STATE", "NODE_TROUBLES",
    "PLACE", "PLACE_AWAY", "READ", "READ_ALL", "REGISTER", "RENEW", "RESERVE", "SETTINGS_ADD", "SETTINGS_ASK",
    "SETTINGS_CHANGE", "SETTINGS_FORGET", "SETTINGS_FORGET_LARGE",
    "SETTINGS_HEADS", "SETTINGS_NODES", "SETTINGS_NOTE", "SETTINGS_RAISE", "SETTINGS_STATES", "SET_STATE",
    "STANDBYS", "STATES", "TAKE", "TAKE_WRITERS", "TOKEN_ADD", "TOKEN_TAKE", "TRUST_ADD", "TRUST_MOVE",
    "TRUST_READ", "TRUST_REMOVE", "WANT", "WRITERS", "Statement",
]  # fmt: skip

KEPT = "current_setting('synchronous_commit') = 'on' and current_setting('synchronous_standby_names') <> ''"


@dataclass(frozen=True)
class Statement:
    """A statement that is prepared once on each connection."""

    name: str
    sql: str
    types: tuple[int, ...]
    encoders: tuple[Encoder, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoders", tuple(encoder(each) for each in self.types))


LOOK = Statement(
    "look",
    "select coalesce(w.incarnation, 0) from waypost.shard s"
    " left join waypost.writer w on w.shard = s.name and w.writer = $2 where s.name = $1 and s.epoch = $3",
    (TEXT, TEXT, INT8),
)
# A process that starts raises its incarnation: what its predecessor has under way is committed before, or never.
# The share lock waits for a takeover, and lets a takeover wait for us.
BEGIN = Statement(
    "begin",
    "insert into waypost.writer (shard, writer, epoch) select name, $2, epoch from waypost.shard"
    " where name = $1 and epoch = $3 for share"
    " on conflict (shard, writer) do update set incarnation = writer.incarnation + 1, epoch = excluded.epoch"
    f"  where writer.incarnation = $4 returning incarnation, n, ends, {KEPT}",
    (TEXT, TEXT, INT8, INT8),
)

_FENCE = (
    "update waypost.writer set n = $5, ends = $6 where shard = $1 and writer = $2 and epoch = $3 and incarnation = $4"
    " and n = $5 - 1 returning n"
)

# One chunk, which is the usual commit: the statement with arrays costs half as much CPU again.
COMMIT_ONE = Statement(
    "commit_one",
    f"with w as ({_FENCE})"
    " insert into waypost.chunk (shard, writer, n, part, kind, file, at, crc, bytes)"
    f" select $1, $2, w.n, 0, $7, $8, $9, $10, $11 from w returning n, {KEPT}",
    (TEXT, TEXT, INT8, INT8, INT8, BYTEA, CHAR, TEXT, INT8, INT8, BYTEA),
)

# The deletion sees the chunks of before the statement, so a file may be dropped and begun again in one batch.
COMMIT = Statement(
    "commit",
    f"with w as ({_FENCE}),"
    " gone as (delete from waypost.chunk using w where shard = $1 and file = any($7)),"
    " removed as (delete from waypost.state using w where shard = $1 and file = any($7)),"
    # A segment that is retired: its bytes stay where they are, only the rows are written again.
    " moved as (update waypost.chunk c set file = t.new from w, unnest($15::text[], $16::text[]) t (old, new)"
    "  where c.shard = $1 and c.file = t.old),"
    " small as (insert into waypost.state (shard, file, bytes)"
    "  select $1, t.f, t.b from w, unnest($8::text[], $9::bytea[]) t (f, b)"
    "  on conflict (shard, file) do update set bytes = excluded.bytes),"
    " big as (insert into waypost.chunk (shard, writer, n, part, kind, file, at, crc, bytes)"
    "  select $1, $2, w.n, t.part - 1, t.kind, t.file, t.at, t.crc, t.bytes"
    '  from w, unnest($10::"char"[], $11::text[], $12::bigint[], $13::bigint[], $14::bytea[])'
    "  with ordinality t (kind, file, at, crc, bytes, part))"
    f" select n, {KEPT} from w",
    (TEXT, TEXT, INT8, INT8, INT8, BYTEA, TEXTS, TEXTS, BYTEAS, CHARS, TEXTS, INT8S, INT8S, BYTEAS, TEXTS, TEXTS),
)

# It writes, so it waits for the standby, and for everything that still holds the row.
ASK = Statement(
    "ask",
    "update waypost.writer set asked = asked + 1 where shard = $1 and writer = $2 and epoch = $3 and incarnation = $4"
    f" returning n, {KEPT}",
    (TEXT, TEXT, INT8, INT8),
)

_SHARD = "name, number, epoch, owner, beat, ids_after, state, placed, wanted, released"

REGISTER = Statement(
    "register",
    "insert into waypost.shard (name, number, epoch, owner, state)"
    " select $1, m.number, 1, $2, $4 from (select greatest(coalesce(max(number), 0) + 1, $5) as number from waypost.shard) m"
    f" where m.number <= $3 on conflict (name) do nothing returning {_SHARD}, {KEPT}",
    (TEXT, TEXT, INT8, TEXT, INT8),
)
READ = Statement("read", f"select {_SHARD} from waypost.shard where name = $1", (TEXT,))
# With the seconds since the owner renewed, by the server's clock: for people.
LIST = Statement(
    "list",
    f"select {_SHARD}, greatest(0, extract(epoch from now() - renewed_at) * 1000)::bigint from waypost.shard order by name",
    (),
)
READ_ALL = Statement("read_all", f"select {_SHARD} from waypost.shard order by name", ())

# $4 is the last beat that was confirmed, $5 the one to set: an earlier renewal that is still under way finds nothing after it.
RENEW = Statement(
    "renew",
    "update waypost.shard set beat = $5, renewed_at = now()"
    f" where name = $1 and epoch = $2 and owner = $3 and beat >= $4 and beat < $5 returning beat, wanted, {KEPT}",
    (TEXT, INT8, TEXT, INT8, INT8),
)
RESERVE = Statement(
    "reserve",
    f"update waypost.shard set ids_after = greatest(ids_after, $3) where name = $1 and epoch = $2 returning ids_after, {KEPT}",
    (TEXT, INT8, INT8),
)
SET_STATE = Statement(
    "set_state",
    f"update waypost.shard set state = $4 where name = $1 and epoch = $2 and owner = $3 returning epoch, {KEPT}",
    (TEXT, INT8, TEXT, TEXT),
)

# A shard that is being taken in from a disk is held: no node takes it over. A statement of an earlier attempt finds another
# epoch.
BEGIN_AGAIN = Statement(
    "begin_again",
    "update waypost.shard set epoch = epoch + 1, beat = beat + 1 where name = $1 and epoch = $2 and owner = $3"
    f" and state = 'held' returning {_SHARD}, {KEPT}",
    (TEXT, INT8, TEXT),
)
GIVE_UP = Statement(
    "give_up",
    "delete from waypost.shard where name = $1 and epoch = $2 and owner = $3 and state = 'held'"
    " and not exists (select from waypost.chunk where shard = $1) and not exists (select from waypost.state where shard = $1)"
    f" returning epoch, {KEPT}",
    (TEXT, INT8, TEXT),
)
# The same without the disk: the row stays, so that its epoch is used by nothing else.
CLOSE_HELD = Statement(
    "close_held",
    "update waypost.shard set epoch = epoch + 1, owner = '', beat = beat + 1, state = 'closed', placed = '', wanted = '',"
    " released = 0 where name = $1 and epoch = $2 and owner = $3 and state = 'held'"
    " and not exists (select from waypost.chunk where shard = $1) and not exists (select from waypost.state where shard = $1)"
    f" and not exists (select from waypost.writer where shard = $1) returning {_SHARD}, {KEPT}",
    (TEXT, INT8, TEXT),
)
# A takeover without a new owner: with ``TAKE_WRITERS``, every process of the shard finds no row.
CLOSE = Statement(
    "close",
    "update waypost.shard set epoch = epoch + 1, owner = '', beat = beat + 1, state = 'closed', placed = '', wanted = '',"
    " released = 0 where name = $1 and epoch = $2 and owner = $3 and state = 'draining' and wanted = '' and released = 0"
    " returning epoch",
    (TEXT, INT8, TEXT),
)
# Rows of a shard that no process of it may use: one of a command that was stopped finds another epoch, or an open shard. The
# share lock waits for a command that begins again or opens it, and lets that wait for us.
_UNUSED = (
    "with s as (select 1 from waypost.shard where name = $1 and epoch = $2 and owner = $3 and state in ('held', 'closed')"
    "  for share)"
)
# Files from one name up to another, some rows at once: a long statement keeps others from cleaning up.
FREE_CHUNKS = Statement(
    "free_chunks",
    f"{_UNUSED}, gone as (delete from waypost.chunk using s where ctid = any(array(select ctid from waypost.chunk"
    "  where shard = $1 and file >= $4 and file < $5 limit $6)) and shard = $1 returning 1)"
    f" select (select count(*) from gone), {KEPT} from s",
    (TEXT, INT8, TEXT, TEXT, TEXT, INT8),
)
FREE_STATES = Statement(
    "free_states",
    f"{_UNUSED}, gone as (delete from waypost.state using s where shard = $1 and file >= $4 and file < $5 returning 1)"
    f" select (select count(*) from gone), {KEPT} from s",
    (TEXT, INT8, TEXT, TEXT, TEXT),
)
FREE_WRITERS = Statement(
    "free_writers",
    f"{_UNUSED}, gone as (delete from waypost.writer using s where shard = $1 returning 1)"
    f" select (select count(*) from gone), {KEPT} from s",
    (TEXT, INT8, TEXT),
)

# The two statements of a takeover, in one transaction. The second waits for every commit under way. They are two, because one
# statement would not see a writer that began while it waited for the shard's row.
TAKE = Statement(
    "take",
    "update waypost.shard set epoch = epoch + 1, owner = $3, beat = beat + 1, renewed_at = now(), wanted = '', released = 0,"
    " state = case when state in ('open', 'draining') then $5 else state end"
    " where name = $1 and epoch = $2 and beat = $4 returning epoch",
    (TEXT, INT8, TEXT, INT8, TEXT),
)
TAKE_WRITERS = Statement(
    "take_writers",
    "update waypost.writer set epoch = $2, incarnation = incarnation + 1 where shard = $1",
    (TEXT, INT8),
)
# After a takeover, and after one or a registration whose outcome is unknown: a write of one's own, on a row that is ours.
CONFIRM = Statement(
    "confirm",
    f"update waypost.shard set beat = beat + 1 where name = $1 and epoch = $2 and owner = $3 returning {_SHARD}, {KEPT}",
    (TEXT, INT8, TEXT),
)

# A move. The node that wants a shard waits until its owner has handed it over; nothing runs there any more when it writes that.
WANT = Statement(
    "want",
    "update waypost.shard set wanted = $3 where name = $1 and epoch = $2 and wanted = '' and released = 0"
    f" returning epoch, {KEPT}",
    (TEXT, INT8, TEXT),
)
PLACE = Statement(
    "place",
    "update waypost.shard set placed = $4, wanted = case when split_part(owner, '/', 1) = $3 then '' else $3 end"
    f" where name = $1 and epoch = $2 and released = 0 and state in ('open', 'draining') returning epoch, {KEPT}",
    (TEXT, INT8, TEXT, TEXT),
)
# Of a node that drains: a drain that was ended meanwhile places nothing more.
PLACE_AWAY = Statement(
    "place_away",
    "update waypost.shard set placed = $4, wanted = $3 where name = $1 and epoch = $2 and released = 0"
    " and state in ('open', 'draining') and split_part(owner, '/', 1) in"
    f" (select name from waypost.node where state = 'draining') returning epoch, {KEPT}",
    (TEXT, INT8, TEXT, TEXT),
)
HAND_OVER = Statement(
    "hand_over",
    "update waypost.shard set released = epoch where name = $1 and epoch = $2 and owner = $3 and wanted <> ''"
    f" returning epoch, {KEPT}",
    (TEXT, INT8, TEXT),
)

# The nodes. The beat is only for people and for commands: no shard is taken because of it.
NODE_BEAT = Statement(
    "node_beat",
    "insert into waypost.node (name) values ($1)"
    f" on conflict (name) do update set beat = node.beat + 1, seen_at = now() returning state, {KEPT}",
    (TEXT,),
)
NODE_STATE = Statement("node_state", "select state from waypost.node where name = $1", (TEXT,))
NODE_SET = Statement(
    "node_set",
    f"update waypost.node set state = $2 where name = $1 returning state, {KEPT}",
    (TEXT, TEXT),
)
# After a transaction that changed a row: a write of one's own says whether it is on two servers.
NODE_CONFIRM = Statement(
    "node_confirm",
    f"update waypost.node set state = state where name = $1 returning state, {KEPT}",
    (TEXT,),
)
NODE_DRAINED = Statement(
    "node_drained",
    f"update waypost.node set state = 'drained' where name = $1 and state = 'draining' returning true, {KEPT}",
    (TEXT,),
)
NODE_LIST = Statement(
    "node_list",
    "select name, state, beat, greatest(0, extract(epoch from now() - seen_at) * 1000)::bigint,"
    " extract(epoch from since)::bigint from waypost.node order by name",
    (),
)

# For people, as what a node has taken over, and in the same table: a node that stopped tells nothing any more.
OF_SHARDS = "shards"
NODE_TROUBLES = Statement(
    "node_troubles",
    f"select node, trouble from waypost.settings_node where kind = '{OF_SHARDS}' and trouble <> ''"
    " and seen_at > now() - interval '30 seconds' order by node",
    (),
)

# The giver of shares: one row for all nodes.
_GIVER = "epoch, owner, beat, address"
# One row without a name if there is no standby; the first column: whether our role sees them.
STANDBYS = Statement(
    "standbys",
    "select pg_has_role(current_user, 'pg_read_all_stats', 'usage'), application_name, coalesce(host(client_addr), ''),"
    " coalesce(state, ''), coalesce(sync_state, ''),"
    " coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), -1)::bigint,"
    " coalesce(extract(epoch from flush_lag) * 1000, -1)::bigint"
    " from (select 1) as always left join pg_stat_replication on true order by application_name, pid",
    (),
)

GIVER_READ = Statement("giver_read", f"select {_GIVER} from waypost.giver", ())
GIVER_MAKE = Statement(
    "giver_make",
    "insert into waypost.giver (epoch, owner, address) values ($1, $2, $3)"
    f" on conflict (one) do nothing returning {_GIVER}, {KEPT}",
    (INT8, TEXT, TEXT),
)
GIVER_TAKE = Statement(
    "giver_take",
    "update waypost.giver set epoch = $3, owner = $4, beat = beat + 1, address = $5"
    f" where epoch = $1 and beat = $2 and epoch < $3 returning {_GIVER}, {KEPT}",
    (INT8, INT8, INT8, TEXT, TEXT),
)
GIVER_RENEW = Statement(
    "giver_renew",
    f"update waypost.giver set beat = $4 where epoch = $1 and owner = $2 and beat >= $3 and beat < $4 returning beat, {KEPT}",
    (INT8, TEXT, INT8, INT8),
)

GIVER_LEAVE = Statement(
    "giver_leave",
    f"update waypost.giver set owner = '', beat = beat + 1 where epoch = $1 and owner = $2 returning beat, {KEPT}",
    (INT8, TEXT),
)

# The nodes that are in: the certificates that count. The rows of nodes and tokens belong to one authority, that of the row.
AUTHORITY_READ = Statement("authority_read", "select digest from waypost.node_authority", ())
AUTHORITY_MAKE = Statement(
    "authority_make",
    f"insert into waypost.node_authority (digest) values ($1) on conflict (one) do nothing returning true, {KEPT}",
    (BYTEA,),
)
AUTHORITY_REPLACE = Statement(
    "authority_replace",
    "with gone as (delete from waypost.node_trust), old as (delete from waypost.node_token)"
    " insert into waypost.node_authority (digest) values ($1)"
    f" on conflict (one) do update set digest = excluded.digest returning true, {KEPT}",
    (BYTEA,),
)
TRUST_READ = Statement(
    "trust_read",
    "select node, address, certificate, (extract(epoch from now() - joined_at) * 1000)::bigint from waypost.node_trust"
    " order by node",
    (),
)
TRUST_ADD = Statement(
    "trust_add",
    "insert into waypost.node_trust (node, address, certificate)"
    " select $1, $2, $3 from waypost.node_authority where digest = $4"
    " on conflict (node) do update set address = excluded.address, certificate = excluded.certificate, joined_at = now()"
    f" returning true, {KEPT}",
    (TEXT, TEXT, BYTEA, BYTEA),
)
TRUST_MOVE = Statement(
    "trust_move",
    "update waypost.node_trust set address = $2 where node = $1 and certificate = $3 and address <> $2"
    f" returning true, {KEPT}",
    (TEXT, TEXT, BYTEA),
)
TRUST_REMOVE = Statement(
    "trust_remove",
    "with token as (delete from waypost.node_token where node = $1),"
    " taken as (delete from waypost.settings_node where node = $1)"
    f" delete from waypost.node_trust where node = $1 returning true, {KEPT}",
    (TEXT,),
)
# A token is kept by its digest alone, and by what it opens.
TOKEN_ADD = Statement(
    "token_add",
    "with over as (delete from waypost.node_token where expires_at <= now() and node <> $1)"
    " insert into waypost.node_token (node, digest, sealed, expires_at)"
    " select $1, $2, $3, now() + make_interval(secs => $4) from waypost.node_authority where digest = $5"
    " on conflict (node) do update set digest = excluded.digest, sealed = excluded.sealed, expires_at = excluded.expires_at"
    f" returning true, {KEPT}",
    (TEXT, BYTEA, BYTEA, INT8, BYTEA),
)
TOKEN_TAKE = Statement(
    "token_take",
    f"delete from waypost.node_token where digest = $1 returning node, sealed, expires_at > now(), {KEPT}",
    (BYTEA,),
)

# The settings of all nodes. A change names the version and the number of questions that it has seen: one that is still under
# way when its outcome is asked for finds another number, and writes nothing.
SETTINGS_HEADS = Statement("settings_heads", "select kind, version from waypost.settings", ())
SETTINGS_ASK = Statement(
    "settings_ask",
    "insert into waypost.settings (kind) values ($1) on conflict (kind) do update set asked = settings.asked + 1"
    f" returning version, asked, {KEPT}",
    (TEXT,),
)
SETTINGS_RAISE = Statement(
    "settings_raise",
    "update waypost.settings set version = $4 where kind = $1 and version = $2 and asked = $3 returning version",
    (TEXT, INT8, INT8, INT8),
)
SETTINGS_ADD = Statement(
    "settings_add",
    "insert into waypost.settings_state (kind, version, change, sealed) values ($1, $2, $3, $4)",
    (TEXT, INT8, TEXT, BYTEA),
)
SETTINGS_FORGET = Statement(
    "settings_forget", "delete from waypost.settings_state where kind = $1 and version <= $2", (TEXT, INT8)
)
# Of large states: those that the newer ones leave no room for, and never the newest.
SETTINGS_FORGET_LARGE = Statement(
    "settings_forget_large",
    "delete from waypost.settings_state where kind = $1 and version < $2 and version <= (select max(version) from"
    " (select version, sum(octet_length(sealed)) over (order by version desc) as bytes from waypost.settings_state"
    " where kind = $1) as counted where bytes > $3)",
    (TEXT, INT8, INT8),
)
SETTINGS_CHANGE = Statement(
    "settings_change", "select change from waypost.settings_state where kind = $1 and version = $2", (TEXT, INT8)
)
SETTINGS_STATES = Statement(
    "settings_states",
    "select version, change, sealed from waypost.settings_state where kind = $1 and version > $2 order by version limit $3",
    (TEXT, INT8, INT8),
)
SETTINGS_NOTE = Statement(
    "settings_note",
    "insert into waypost.settings_node (node, kind, version, trouble) values ($1, $2, $3, $4)"
    " on conflict (node, kind) do update set version = excluded.version, trouble = excluded.trouble, seen_at = now()"
    f" returning version, {KEPT}",
    (TEXT, TEXT, INT8, TEXT),
)
SETTINGS_NODES = Statement(
    "settings_nodes",
    f"select node, kind, version, trouble from waypost.settings_node where kind <> '{OF_SHARDS}' order by node, kind",
    (),
)
KEPT_ADD = Statement(
    "kept_add",
    "insert into waypost.kept_file (reference, sealed) values ($1, $2)"
    f" on conflict (reference) do update set sealed = excluded.sealed, added_at = now() returning reference, {KEPT}",
    (TEXT, BYTEA),
)
# A change that names a file that is there already: it stays, also if the states of before go meanwhile.
KEPT_TOUCH = Statement(
    "kept_touch",
    f"update waypost.kept_file set added_at = now() where reference = $1 returning reference, {KEPT}",
    (TEXT,),
)
KEPT_OLD = Statement(
    "kept_old",
    "select reference from waypost.kept_file where added_at < now() - $1 * interval '1 second' order by reference",
    (INT8,),
)
KEPT_REMOVE = Statement(
    "kept_remove",
    "delete from waypost.kept_file where reference = $1 and added_at < now() - $2 * interval '1 second' returning reference",
    (TEXT, INT8),
)
KEPT_READ = Statement("kept_read", "select sealed from waypost.kept_file where reference = $1", (TEXT,))
# The mail of the reports: for each day a small file of no shard, which says which node mails it. Always one row is read.
LETTER_READ = Statement(
    "letter_read",
    "select (select bytes from waypost.state where shard = '' and file = $1), (extract(epoch from now()) * 1000)::bigint",
    (TEXT,),
)
LETTER_MAKE = Statement(
    "letter_make",
    "insert into waypost.state (shard, file, bytes) values ('', $1, $2) on conflict (shard, file) do nothing"
    f" returning true, {KEPT}",
    (TEXT, BYTEA),
)
LETTER_TAKE = Statement(
    "letter_take",
    f"update waypost.state set bytes = $3 where shard = '' and file = $1 and bytes = $2 returning true, {KEPT}",
    (TEXT, BYTEA, BYTEA),
)
LETTERS_REMOVE = Statement(
    "letters_remove",
    f"delete from waypost.state where shard = '' and file >= $1 and file < $2 returning true, {KEPT}",
    (TEXT, TEXT),
)

WRITERS = Statement(
    "writers",
    "select writer, epoch, incarnation, n, ends from waypost.writer where shard = $1 order by writer",
    (TEXT,),
)
STATES = Statement("states", "select file, bytes from waypost.state where shard = $1 order by file", (TEXT,))
# Chunks behind a place in the order of files, without their bytes. An uncompressed value's length is known without reading it.
CHUNKS = Statement(
    "chunks",
    "select file, writer, n, part, kind, at, octet_length(bytes), crc from waypost.chunk where shard = $1"
    " and (file, writer, n, part) > ($2, $3, $4, $5) and file >= $2 order by file, writer, n, part limit $6",
    (TEXT, TEXT, TEXT, INT8, INT8, INT8),
)
FETCH = Statement(
    "fetch",
    "select c.writer, c.n, c.part, c.bytes from unnest($2::text[], $3::bigint[], $4::bigint[]) t (writer, n, part)"
    " join waypost.chunk c on c.shard = $1 and c.writer = t.writer and c.n = t.n and c.part = t.part",
    (TEXT, TEXTS, INT8S, INT8S),
)
# A file is marked by the manager alone, and its batches ascend over all owners.
FETCH_MARKS = Statement(
    "fetch_marks",
    "select writer, n, part, at, crc, bytes from waypost.chunk where shard = $1 and file = $2 and kind = 'm'"
    " order by writer, n, part",
    (TEXT, TEXT),
)
