//! Who the master is, by asking the sentinels one after the other.

use redis::Value;
use tokio::time::timeout;

use super::{
    config::{Endpoint, Server, Topology},
    shared::Shared,
};

/// The master that the first sentinel which knows one names. An error: what each of them said.
pub(super) async fn master(shared: &Shared) -> Result<Server, String> {
    let Topology::Sentinel { master, sentinels } = &shared.config.topology else {
        return Err("no sentinels are configured".to_owned());
    };
    let mut complaints = Vec::new();
    for sentinel in sentinels {
        match ask(shared, sentinel, master).await {
            Ok(endpoint) => return Ok(Server::at(endpoint)),
            Err(why) => complaints.push(format!("sentinel {}: {why}", sentinel.endpoint)),
        }
    }
    Err(complaints.join("; "))
}

async fn ask(shared: &Shared, sentinel: &Server, master: &str) -> Result<Endpoint, String> {
    let mut dialled = shared.sentinel_dialer.dial(sentinel).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(master);
    let patience = shared.sentinel_dialer.patience();
    let reply = timeout(patience, dialled.connection.send_packed_command(&command))
        .await
        .map_err(|_| format!("it is silent for {patience:?}"))?
        .map_err(|_| "it closed the connection".to_owned())?;
    address(&reply, master)
}

fn address(reply: &Value, master: &str) -> Result<Endpoint, String> {
    let text = |value: &Value| match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    match reply {
        Value::Nil => Err(format!("it knows no master {master:?}")),
        Value::ServerError(error) => {
            Err(format!("it says {} {}", error.code(), error.details().unwrap_or_default()))
        }
        Value::Array(parts) => match parts.as_slice() {
            [host, port] => text(host)
                .zip(text(port).and_then(|port| port.parse().ok()))
                .map(|(host, port)| Endpoint::Tcp { host, port })
                .ok_or_else(|| "its answer is no address".to_owned()),
            _ => Err("its answer is no address".to_owned()),
        },
        _ => Err("its answer is no address".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_names_the_master_or_says_why_not() {
        let part = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let there = Value::Array(vec![part("10.0.0.1"), part("6379")]);
        assert_eq!(address(&there, "m"), Ok(Endpoint::Tcp { host: "10.0.0.1".to_owned(), port: 6379 }));
        assert!(address(&Value::Nil, "m").unwrap_err().contains("\"m\""));
        assert!(address(&Value::Array(vec![part("h"), part("x")]), "m").is_err());
        assert!(address(&Value::Okay, "m").is_err());
    }
}
