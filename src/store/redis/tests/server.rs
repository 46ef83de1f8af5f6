//! A Redis server of one test: `redis-server` has to be on PATH. On a port that the kernel chose; ends with its value.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::{sleep, timeout};

pub(super) struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With more lines of `redis.conf`.
    pub async fn start_with(lines: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = folder.path().join("redis.conf");
        let dir = folder.path().display();
        let text = format!("bind 127.0.0.1\nport {port}\ndir {dir}\nsave \"\"\n{}\n", lines.join("\n"));
        std::fs::write(&file, text).unwrap();
        let process = Command::new("redis-server")
            .arg(file)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is on PATH: install Redis 7 to run these tests");
        let server = Self { process, port, _folder: folder };
        let up = async {
            while TcpStream::connect(server.address()).is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), up).await.expect("redis-server starts");
        server
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// One command on a connection of its own; elements of a list on a line each.
    pub fn call(&self, command: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let mut wire = format!("*{}\r\n", command.len());
        command.iter().for_each(|word| wire.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        wire.push_str("*1\r\n$4\r\nQUIT\r\n");
        stream.write_all(wire.as_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let reply = String::from_utf8(reply).unwrap();
        let reply = reply.strip_suffix("+OK\r\n").unwrap();
        reply
            .lines()
            .filter(|line| !line.starts_with('*') && !line.starts_with('$'))
            .map(|line| line.strip_prefix([':', '+', '-']).unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    }
}
