use super::*;

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

fn single(url: &str) -> Server {
    match Topology::parse(TopologyKind::Single, SocketType::Tcp, url).unwrap() {
        Topology::Single(server) => server,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_may_be_written_in_many_forms() {
    for (text, endpoint) in [
        ("redis:6380", tcp("redis", 6380)),
        (" redis ", tcp("redis", 6379)),
        ("10.0.0.1:7000", tcp("10.0.0.1", 7000)),
        ("[::1]:6379", tcp("::1", 6379)),
        ("[::1]", tcp("::1", 6379)),
        ("fe80::1", tcp("fe80::1", 6379)),
        ("redis://h", tcp("h", 6379)),
        ("rediss://[::1]:7/", tcp("::1", 7)),
        ("unix:///run/redis.sock", Endpoint::Unix("/run/redis.sock".into())),
    ] {
        assert_eq!(single(text).endpoint, endpoint, "{text}");
    }
    let path = Topology::parse(TopologyKind::Single, SocketType::Unix, "/run/r.sock").unwrap();
    assert_eq!(path, Topology::Single(Server::at(Endpoint::Unix("/run/r.sock".into()))));
    let url = Topology::parse(TopologyKind::Single, SocketType::Unix, "redis://h:1").unwrap();
    assert_eq!(url, Topology::Single(Server::at(tcp("h", 1))));
}

#[test]
fn a_url_carries_name_password_database_and_tls() {
    let server = single("rediss://alice:p%40ss@x:y@h:1/3");
    assert_eq!(server.auth, Some(Auth::new(Some("alice"), "p@ss@x:y")));
    assert_eq!((server.db, server.tls), (3, true));
    assert_eq!(single("redis://:only@h").auth, Some(Auth::new(None, "only")));
    assert_eq!(single("redis://h?db=4").db, 4);
    assert!(!single("redis://h").tls);
}

#[test]
fn what_cannot_be_meant_is_refused_and_says_why() {
    let refused = |kind, text| Topology::parse(kind, SocketType::Tcp, text).unwrap_err().to_string();
    let single = |text| refused(TopologyKind::Single, text);
    assert!(single("").contains("at least one"));
    assert!(single("h:0").contains("no port"));
    assert!(single("h:99999").contains("no port"));
    assert!(single("/run/redis.sock").contains("REDIS_SOCKET_TYPE=unix"));
    assert!(single("redis://h/x").contains("no database"));
    assert!(single("[::1").contains("no Redis address"));
    assert!(single("a:b:c").contains("no Redis address"));
    assert!(refused(TopologyKind::Cluster, "redis://h/3").contains("one database"));
    assert!(refused(TopologyKind::Cluster, " , ").contains("at least one"));
    for text in ["mymaster", "mymaster,", ",s1", ""] {
        assert!(refused(TopologyKind::Sentinel, text).contains("at least one sentinel"), "{text}");
    }
}

#[test]
fn lists_pass_over_empty_elements_and_doubles() {
    let ring = Topology::parse(TopologyKind::Ring, SocketType::Tcp, "a, b:1,,a:6379 ,").unwrap();
    assert_eq!(ring, Topology::Ring(vec![Server::at(tcp("a", 6379)), Server::at(tcp("b", 1))]));
    let sentinel =
        Topology::parse(TopologyKind::Sentinel, SocketType::Tcp, " m , s1:26379,s2:26379").unwrap();
    assert_eq!(
        sentinel,
        Topology::Sentinel {
            master: "m".to_owned(),
            sentinels: vec![Server::at(tcp("s1", 26379)), Server::at(tcp("s2", 26379))]
        }
    );
}

#[test]
fn a_password_may_hold_colons() {
    assert_eq!(Auth::parse(""), None);
    assert_eq!(Auth::parse("pass"), Some(Auth::new(None, "pass")));
    assert_eq!(Auth::parse("user:pa:ss"), Some(Auth::new(Some("user"), "pa:ss")));
    assert_eq!(Auth::parse(":pass"), Some(Auth::new(None, "pass")));
}

#[test]
fn secrets_are_never_shown() {
    let mut config = RedisConfig::new(Topology::Single(single("redis://u:hush@h")));
    config.auth = Auth::parse("hush");
    config.sentinel_auth = Auth::parse("u:hush");
    assert!(!format!("{config:?}").contains("hush"));
    // The last three have no scheme, so they are no addresses; the password in them is one all the same.
    for text in ["redis://u:hush@a b", "redis://u:hush@:1", "u:hush@h:1:2", "u:hush@h", "/u:hush@h"] {
        let error = Topology::parse(TopologyKind::Single, SocketType::Tcp, text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    }
    let error = Topology::parse(TopologyKind::Sentinel, SocketType::Tcp, "redis://u:hush@h").unwrap_err();
    assert!(!format!("{error}").contains("hush"), "{error}");
}

#[test]
fn a_password_with_commas_is_masked_whole() {
    for (text, shown) in [
        ("redis://u:hu,sh@h:1", "redis://*****@h:1"),
        ("redis://u:hu,s,h@h:1,redis://:hush@i,j", "redis://*****@h:1,redis://*****@i,j"),
        ("m,redis://:hush@h", "m,redis://*****@h"),
        ("u:hu,sh@h", "*****@h"),
        ("a:1,b:2", "a:1,b:2"),
        ("", ""),
    ] {
        assert_eq!(masked(text), shown);
    }
}

#[test]
fn the_values_of_a_query_are_masked() {
    for (text, shown) in [
        ("rediss://u:x@h/1?password=hush", "rediss://*****@h/1?password=*****"),
        ("https://c:4318/v1?api-key=hush&x=hu,sh&hush", "https://c:4318/v1?api-key=*****&x=*****&*****"),
        ("redis://u:hu?sh@h:1", "redis://*****"),
        ("redis://h?password=hu@sh", "redis://*****"),
        ("redis://h?db=1,redis://i?password=hush", "redis://h?db=*****,redis://i?password=*****"),
        ("u:hush://x@h:1", "*****@h:1"),
        ("h:1?", "h:1?"),
    ] {
        assert_eq!(masked(text), shown);
    }
}
