-- From version 2 of the tables to version 3: the settings of all nodes.
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

update waypost.schema_version set version = 3;
