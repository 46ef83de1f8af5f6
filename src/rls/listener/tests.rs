use std::{net, os::unix};

use super::*;

fn any_port() -> Address {
    Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

#[test]
fn a_port_may_be_shared_and_says_so() {
    let first = Listener::bind(&any_port()).unwrap();
    assert!(!first.is_shared());
    let second = Listener::bind(first.address()).unwrap();
    assert!(second.is_shared());
    assert_eq!(second.address(), first.address());
}

#[tokio::test]
async fn what_waits_is_accepted_although_the_reactor_was_never_asked() {
    let listener = Listener::bind(&any_port()).unwrap();
    let Address::Tcp(port) = *listener.address() else { panic!("a port") };
    let accepting = listener.accepting().unwrap();
    let _waiting = [(); 3].map(|()| net::TcpStream::connect(port).unwrap());
    assert_eq!(accepting.last().len(), 3);
    net::TcpStream::connect(port).unwrap_err();

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rl.sock");
    let accepting = Listener::bind(&Address::Unix(path.clone())).unwrap().accepting().unwrap();
    let _waiting = [(); 3].map(|()| unix::net::UnixStream::connect(&path).unwrap());
    assert_eq!(accepting.last().len(), 3);
    assert!(!path.exists());
}

#[test]
fn a_port_that_its_owner_does_not_share_is_in_use() {
    let owner = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = Address::Tcp(owner.local_addr().unwrap());
    let error = Listener::bind(&address).unwrap_err();
    assert!(matches!(error, BindError::InUse(_)), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: another process")));
}

#[test]
fn an_address_of_another_machine_is_named() {
    let error = Listener::bind(&Address::Tcp(([192, 0, 2, 1], 0).into())).unwrap_err();
    assert!(matches!(error, BindError::NotLocal(_)), "{error}");
}

#[test]
fn a_stale_socket_file_is_replaced_and_the_own_one_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rl.sock");
    drop(unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
    unix::net::UnixStream::connect(&path).unwrap();
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_socket_that_somebody_answers_on_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rl.sock");
    let _owner = unix::net::UnixListener::bind(&path).unwrap();
    let error = Listener::bind(&Address::Unix(path.clone())).unwrap_err();
    assert!(matches!(error, BindError::InUse(_)), "{error}");
    unix::net::UnixStream::connect(&path).unwrap();
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    fs::write(&path, "data").unwrap();
    let error = Listener::bind(&Address::Unix(path.clone())).unwrap_err();
    assert!(matches!(error, BindError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");
}

#[test]
fn a_socket_whose_owner_is_too_busy_to_accept_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rl.sock");
    let owner = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    owner.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    owner.listen(0).unwrap();
    let _waiting = unix::net::UnixStream::connect(&path).unwrap();
    let error = Listener::bind(&Address::Unix(path)).unwrap_err();
    assert!(matches!(error, BindError::InUse(_)), "{error}");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Listener::bind(&Address::Unix(dir.path().join("no/rl.sock"))).unwrap_err();
    assert!(matches!(error, BindError::NoDirectory(_)), "{error}");
}

#[test]
fn a_successors_socket_file_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rl.sock");
    let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
    fs::remove_file(&path).unwrap();
    let _successor = unix::net::UnixListener::bind(&path).unwrap();
    drop(listener);
    unix::net::UnixStream::connect(&path).unwrap();
}

/// On a machine without IPv6, too.
#[test]
fn all_addresses_of_ipv6_are_all_of_ipv4_as_well() {
    let listener = Listener::bind(&Address::Tcp((Ipv6Addr::UNSPECIFIED, 0).into())).unwrap();
    let Address::Tcp(address) = listener.address() else { panic!("a port") };
    net::TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).unwrap();
}

#[test]
fn a_machine_without_ipv6_is_known_by_its_errors() {
    let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8081));
    let no_family = io::Error::from_raw_os_error(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    let no_address = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    assert!(is_without_ipv6(all, &no_family) && is_without_ipv6(all, &no_address()));
    assert!(!is_without_ipv6((Ipv6Addr::LOCALHOST, 8081).into(), &no_address()));
    assert!(!is_without_ipv6((Ipv4Addr::UNSPECIFIED, 8081).into(), &no_address()));
    assert!(!is_without_ipv6(all, &io::ErrorKind::AddrInUse.into()));
}
