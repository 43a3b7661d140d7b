-- From version 1 of the tables to version 2: what a move needs, and the nodes.
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

update waypost.schema_version set version = 2;
