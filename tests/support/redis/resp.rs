//! The Redis protocol, as little of it as a test needs to look at a server and to give it orders: RESP 2, one command at a
//! time or several in one write. It is no part of the product, so it cannot share its mistakes.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Text(String),
    Error(String),
    Number(i64),
    Nil,
    List(Vec<Reply>),
}

impl Reply {
    /// The text of a status or a string. An error reply is an error here.
    pub fn text(self) -> anyhow::Result<String> {
        match self {
            Self::Text(text) => Ok(text),
            other => bail!("expected text, the server said {other:?}"),
        }
    }

    pub fn number(self) -> anyhow::Result<i64> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => text.parse().with_context(|| format!("expected a number, found {text:?}")),
            other => bail!("expected a number, the server said {other:?}"),
        }
    }

    pub fn list(self) -> anyhow::Result<Vec<Reply>> {
        match self {
            Self::List(list) => Ok(list),
            other => bail!("expected a list, the server said {other:?}"),
        }
    }

    pub fn ok(self) -> anyhow::Result<()> {
        let text = self.text()?;
        ensure!(text == "OK", "expected OK, the server said {text:?}");
        Ok(())
    }
}

pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub async fn open(to: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(to).await.with_context(|| format!("cannot connect to {to}"))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub async fn call<A: AsRef<str>>(&mut self, command: &[A]) -> anyhow::Result<Reply> {
        self.pipeline(&[command]).await?.pop().context("one command has one reply")
    }

    /// Several commands in one write; their replies in the same order.
    pub async fn pipeline<A: AsRef<str>>(&mut self, commands: &[&[A]]) -> anyhow::Result<Vec<Reply>> {
        let mut out = String::new();
        for command in commands {
            out.push_str(&format!("*{}\r\n", command.len()));
            for argument in *command {
                out.push_str(&format!("${}\r\n{}\r\n", argument.as_ref().len(), argument.as_ref()));
            }
        }
        self.0.get_mut().write_all(out.as_bytes()).await?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            replies.push(Box::pin(self.read()).await?);
        }
        Ok(replies)
    }

    async fn read(&mut self) -> anyhow::Result<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line).await?;
        ensure!(line.ends_with("\r\n"), "the server closed the connection");
        let (kind, rest) = line.trim_end().split_at(1);
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(rest.parse()?),
            "$" | "*" if rest.starts_with('-') => Reply::Nil,
            "$" => {
                let mut text = vec![0; rest.parse::<usize>()? + 2];
                self.0.read_exact(&mut text).await?;
                text.truncate(text.len() - 2);
                Reply::Text(String::from_utf8_lossy(&text).into_owned())
            }
            "*" => {
                let mut list = Vec::new();
                for _ in 0..rest.parse()? {
                    list.push(Box::pin(self.read()).await?);
                }
                Reply::List(list)
            }
            _ => bail!("no reply starts with {line:?}"),
        })
    }
}
