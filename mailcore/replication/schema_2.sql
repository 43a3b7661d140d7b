-- From version 1 of the tables to version 2: what a move needs, the nodes, and the trust among them.
alter table waypost.shard
  add column placed   text not null default '',
  add column wanted   text not null default '',
  add column released bigint not null default 0;

create table waypost.node (
  name    text primary key,
  since   timestamptz not null default now(),
  seen_at timestamptz not null default now(),
  beat    bigint not null default 0,
  state   text not null default 'open' check (state in ('open', 'draining', 'drained')))
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

update waypost.schema_version set version = 2;
