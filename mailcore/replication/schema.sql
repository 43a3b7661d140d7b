-- The tables of a shard's store. Version 3. docs/decisions/0092 says why the database holds the living files as chunks.
create schema waypost;

create table waypost.schema_version (
  version integer not null);
insert into waypost.schema_version values (3);

create table waypost.shard (               -- one row a queue; only registering, the lease, a takeover and reservations write it
  name       text primary key,
  number     smallint not null unique,     -- lent by this table, never lent again; a part of each queue id
  epoch      bigint not null,              -- +1 with each owner
  owner      text not null,                -- the node and the boot that owns it
  beat       bigint not null default 0,    -- raised with each renewal of the lease; watched, and compared with no clock
  renewed_at timestamptz not null default now(),  -- for people only
  ids_after  bigint not null default 0,    -- microseconds; the queue ids of what starts next begin beyond it
  state      text not null default 'open' check (state in ('open', 'draining', 'closed', 'held')),
                                           -- draining: its owner has adopted it, and takes no new mail in it
  placed     text not null default '',     -- the node that a person has placed it at; '': the node whose own it is
  wanted     text not null default '',     -- the node that waits for its owner to hand it over
  released   bigint not null default 0);   -- the epoch in which its owner has handed it over: nothing of it runs there

create table waypost.node (                -- one row a node; its process for the shards of others writes it each second
  name    text primary key,
  since   timestamptz not null default now(),  -- for people, as seen_at
  seen_at timestamptz not null default now(),
  beat    bigint not null default 0,       -- raised while the node lives
  state   text not null default 'open' check (state in ('open', 'draining', 'drained')))  -- but for open it takes no shard
  with (fillfactor = 50);

create table waypost.writer (              -- number, confirmation and fence of one writing process
  shard       text not null references waypost.shard,
  writer      text not null,
  epoch       bigint not null,
  incarnation bigint not null default 1,   -- +1 with each start of the process
  n           bigint not null default 0,   -- its last batch
  ends        bytea not null default '',   -- where the records of its lanes end
  asked       bigint not null default 0,   -- what is written to ask for an unknown outcome
  primary key (shard, writer)) with (fillfactor = 50);

create table waypost.chunk (               -- what the living files of the shard consist of; deleted with the file
  shard  text not null,
  writer text not null,
  n      bigint not null,
  part   smallint not null,
  kind   "char" not null,                  -- a: appended; b: of an upload; m: marks, whose value is in "at"
  file   text collate "C" not null,
  at     bigint not null,                  -- offset in the file
  crc    bigint not null,                  -- CRC-32C of the bytes
  bytes  bytea not null,                   -- of marks: their offsets, u32 little-endian
  primary key (shard, writer, n, part))
  with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000,
        toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_cost_limit = 2000);
alter table waypost.chunk alter bytes set storage external;  -- mail does not shrink enough to pay for trying
create index chunk_file on waypost.chunk (shard, file);

create table waypost.state (               -- small files that are replaced as a whole: restart positions and the like
  shard text not null,
  file  text collate "C" not null,
  bytes bytea not null,
  primary key (shard, file)) with (fillfactor = 50);

create table waypost.giver (               -- one row: the process that divides the limits of destinations among all shards
  one     boolean primary key default true check (one),
  epoch   bigint not null,                 -- raised with each election, never used twice
  owner   text not null,                   -- the node, its boot and the start of the process
  beat    bigint not null default 0,       -- as of a shard
  address text not null)                   -- where it answers
  with (fillfactor = 50);

create table waypost.node_authority (      -- one row: the authority that signs the certificates of nodes
  one    boolean primary key default true check (one),
  digest bytea not null);                  -- SHA-256 of its certificate; certificate and key are on the nodes' disks

create table waypost.node_trust (          -- the nodes that are in; a certificate that is not here counts nowhere
  node        text primary key,
  address     text not null,               -- where others reach it
  certificate bytea not null,              -- DER
  joined_at   timestamptz not null default now());  -- for people only

create table waypost.node_token (          -- what lets a node in: once, and until then
  node       text primary key,
  digest     bytea not null unique,        -- of the token, which is written nowhere
  sealed     bytea not null,               -- the authority, which the token opens
  expires_at timestamptz not null);

create table waypost.settings (            -- what all nodes that are in have once: tuned values, and managed settings
  kind    text primary key,
  version bigint not null default 0,       -- +1 with each change, which names the one that it was made for
  asked   bigint not null default 0)       -- raised before and behind each change: one that is still under way finds nothing
  with (fillfactor = 50);

create table waypost.settings_state (      -- each state of them, with who made it; the authority's key opens it
  kind    text not null references waypost.settings,
  version bigint not null,
  change  text not null,                   -- random: its maker finds it again
  sealed  bytea not null,
  primary key (kind, version));

create table waypost.settings_node (       -- what each node has taken over of them; for people
                                           -- of the kind shards: why a node does not take one, or why its drain waits
  node    text not null,
  kind    text not null,
  version bigint not null,
  trouble text not null default '',        -- why it has not taken more
  seen_at timestamptz not null default now(),
  primary key (node, kind)) with (fillfactor = 50);

create table waypost.kept_file (           -- the files that managed settings refer to; the authority's key opens them
  reference text primary key,
  sealed    bytea not null,
  added_at  timestamptz not null default now());
