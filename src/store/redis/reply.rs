//! What a server's error means for the store.

use redis::{ServerError, ServerErrorKind};

/// What to make of an error that the server sent in place of a result. None of them changed a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The script is to be sent along.
    NoScript,
    /// The slot is served by this node now; an empty host is the host that was asked.
    Moved(String),
    /// This one time, that node is to be asked.
    Ask(String),
    /// The keys of the slot are on their way, some here, some there.
    TryAgain,
    /// This server is no master any more.
    ReadOnly,
    /// It cannot now, and may later.
    State,
    /// It does not let us.
    Denied,
    WrongType,
    /// The count does not fit 64 bits.
    Overflow,
    Other,
}

impl Said {
    pub fn of(error: &ServerError) -> Self {
        let text = error.details().unwrap_or_default();
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Self::NoScript,
            Some(ServerErrorKind::Moved) => Self::Moved(target(text)),
            Some(ServerErrorKind::Ask) => Self::Ask(target(text)),
            Some(ServerErrorKind::TryAgain) => Self::TryAgain,
            Some(ServerErrorKind::ReadOnly) => Self::ReadOnly,
            Some(
                ServerErrorKind::BusyLoading | ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown,
            ) => Self::State,
            Some(ServerErrorKind::NoPerm) => Self::Denied,
            Some(ServerErrorKind::ResponseError) => Self::of_text(text),
            _ => Self::of_code(error.code()).unwrap_or(Self::Other),
        }
    }

    fn of_code(code: &str) -> Option<Self> {
        Some(match code {
            "READONLY" => Self::ReadOnly,
            "OOM" | "NOREPLICAS" | "MISCONF" | "BUSY" | "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" => {
                Self::State
            }
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Self::Denied,
            "WRONGTYPE" => Self::WrongType,
            _ => return None,
        })
    }

    /// Errors without a code of their own: among them those of scripts on Redis 6.2, which quote the inner error.
    fn of_text(text: &str) -> Self {
        if text.contains("would overflow") {
            return Self::Overflow;
        }
        if text.contains("is not an integer") {
            return Self::WrongType;
        }
        if text.contains("can't run this command") || text.starts_with("unknown command") {
            return Self::Denied;
        }
        text.split_whitespace().find_map(Self::of_code).unwrap_or(Self::Other)
    }
}

/// The address in `3999 127.0.0.1:6381`.
fn target(text: &str) -> String {
    text.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn said(line: &str) -> Said {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap() {
            Value::ServerError(error) => Said::of(&error),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_servers_say_is_understood() {
        for (line, meaning) in [
            ("NOSCRIPT No matching script. Please use EVAL.", Said::NoScript),
            ("MOVED 3999 127.0.0.1:6381", Said::Moved("127.0.0.1:6381".to_owned())),
            ("MOVED 3999 :6381", Said::Moved(":6381".to_owned())),
            ("ASK 3999 10.0.0.1:7000", Said::Ask("10.0.0.1:7000".to_owned())),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Said::TryAgain),
            ("READONLY You can't write against a read only replica.", Said::ReadOnly),
            ("LOADING Redis is loading the dataset in memory", Said::State),
            ("CLUSTERDOWN The cluster is down", Said::State),
            ("MASTERDOWN Link with MASTER is down", Said::State),
            ("OOM command not allowed when used memory > 'maxmemory'.", Said::State),
            ("NOREPLICAS Not enough good replicas to write.", Said::State),
            ("BUSY Redis is busy running a script.", Said::State),
            ("MISCONF Redis is configured to save RDB snapshots", Said::State),
            ("NOAUTH Authentication required.", Said::Denied),
            ("NOPERM User x has no permissions to run the 'incrby' command", Said::Denied),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Said::WrongType),
            ("ERR increment or decrement would overflow", Said::Overflow),
            ("ERR value is not an integer or out of range", Said::WrongType),
            ("ERR unknown command 'EVALSHA'", Said::Denied),
            ("ERR Error running script (call to f_1): @user_script:1: OOM command not allowed", Said::State),
            ("ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation", Said::WrongType),
            ("ERR something else", Said::Other),
        ] {
            assert_eq!(said(line), meaning, "{line}");
        }
    }
}
