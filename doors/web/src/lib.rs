//! A cluster over HTTP: an API with the JSON of the command line, and a page that shows the cluster
//! live.
//!
//! The process is one client of the dispatcher. It has one connection for requests and one for
//! events, and shares their answers between all pages that are open: 50 pages cost the dispatcher
//! what one does. It decides nothing about jobs, keeps nothing on disk but hashes of tokens, and
//! has no rights but those of its access file.
//!
//! It is closed by default: see `gate`. Every queue, body and connection has a bound, and every
//! wait a deadline.
//!
//! | modules | contents |
//! | --- | --- |
//! | `serve`, `address` | accepting connections; where to listen, under which names |
//! | `gate`, `token`, `web_tokens`, `attempts` | which requests are let in |
//! | `dispatcher` | the connection for requests, and answers that pages share |
//! | `feed`, `live`, `follow` | numbered events; the state of the cluster; keeping both current |
//! | `sse` | both as server-sent events |
//! | `routes`, `jobs`, `tasks`, `cluster` | the API |
//! | `submit`, `push`, `timeline_answer` | more of it: submissions, pushes, timelines |
//! | `task_index`, `task_export` | tasks of a job by state and text, sorted; all as CSV or JSON |
//! | `timeline`, `timeline_picture`, `time_axis` | tasks on slots of executors; a picture of them |
//! | `job_timelines`, `freshness` | both read from the dispatcher, and for how long that is shown |
//! | `answer`, `api_error`, `asked` | JSON, errors, and parameters of requests |
//! | `metrics`, `rising_counters` | the state in OpenMetrics; counters that never fall |
//! | `openapi`, `page` | the document of the API; the files of the page and for monitoring |

#![forbid(unsafe_code)]

mod address;
mod answer;
mod api_error;
mod asked;
mod attempts;
mod cluster;
mod dispatcher;
mod feed;
mod follow;
mod freshness;
mod gate;
mod job_timelines;
mod jobs;
mod kept;
mod live;
mod metrics;
mod openapi;
mod page;
mod push;
mod rising_counters;
mod routes;
mod serve;
mod shared;
mod sse;
mod submit;
mod task_export;
mod task_index;
mod tasks;
mod time_axis;
mod timeline;
mod timeline_answer;
mod timeline_picture;
mod token;
mod web_tokens;

pub use address::{BasePath, HostNames, WebAddress, WebAddressError};
pub use serve::{WebError, WebPlace, WebServer};
pub use web_tokens::{WebScope, WebTokenView, WebTokens, WebTokensError};
