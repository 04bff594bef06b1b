//! Addresses of sockets, of any family.

use super::kernel::unix_name;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Of the path of a Unix socket: with the zero byte at its end it fills what the kernel has for it.
const UNIX_BYTES_MAX: usize = 107;

/// The address of a socket: an IP address and port, a host name and port, or the name of a Unix
/// socket.
///
/// Calls that take an address take anything that converts into one:
///
/// ```
/// use mely::net::Addr;
/// use std::net::SocketAddr;
/// use std::path::Path;
/// let ip: SocketAddr = ([127, 0, 0, 1], 80).into();
/// assert_eq!(Addr::from("127.0.0.1:80"), ip);
/// assert_eq!(Addr::from(([127, 0, 0, 1], 80)), ip);
/// assert!(matches!(Addr::from("example.org:80"), Addr::Name(_)));
/// assert!(matches!(Addr::from("/run/server.sock"), Addr::Unix(_)));
/// assert!(matches!(Addr::from(Path::new("server.sock")), Addr::Unix(_)));
/// assert!(matches!(Addr::from("@server"), Addr::Abstract(_)));
/// // `parse` checks what `from` leaves to the call that takes the address.
/// assert!("no port".parse::<Addr>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Addr {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A host name and a port, `example.org:80`, to be resolved.
    Name(String),
    /// A Unix socket in the file system; of at most 107 bytes, which the system allows. Unix sockets
    /// know no reset: where another connection is reset, its peer sees an end.
    Unix(PathBuf),
    /// A Unix socket in Linux's abstract namespace, without the leading zero byte.
    Abstract(Vec<u8>),
    /// A Unix socket without a name: the client's end of a connection.
    Unnamed,
}

impl Addr {
    /// The IP address and port, if this is one.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Addr::Ip(addr) => Some(*addr),
            _ => None,
        }
    }

    /// Whether it is one of a Unix socket's.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Addr::Unix(_) | Addr::Abstract(_) | Addr::Unnamed)
    }

    /// Puts the address before the text of an error. The kind stays, and an end that was asked for
    /// (`ECANCELED`) is told as it is.
    pub(crate) fn name_error(&self, error: io::Error) -> io::Error {
        match error.raw_os_error() {
            Some(number) if number == rustix::io::Errno::CANCELED.raw_os_error() => error,
            _ => io::Error::new(error.kind(), format!("{self}: {error}")),
        }
    }

    /// The host and the port of a name.
    pub(crate) fn host_and_port(text: &str) -> io::Result<(&str, u16)> {
        let parts = text.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() && !host.contains(':') => Ok((host, port)),
            _ => {
                let text = format!("`{text}` is no address: host:port, /path or @name");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    /// As the kernel takes it.
    pub(super) fn to_any(&self) -> io::Result<SocketAddrAny> {
        let unix = match self {
            Addr::Ip(addr) => return Ok((*addr).into()),
            Addr::Unix(path) if path.as_os_str().is_empty() => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty path"));
            }
            // A longer one the kernel would take, and tell without the zero byte at its end.
            Addr::Unix(path) if path.as_os_str().len() > UNIX_BYTES_MAX => {
                return Err(rustix::io::Errno::NAMETOOLONG.into());
            }
            Addr::Unix(path) => SocketAddrUnix::new(path.as_path())?,
            // It would be bound, and told as no name.
            Addr::Abstract(name) if name.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty name"));
            }
            Addr::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?,
            Addr::Unnamed => SocketAddrUnix::new_unnamed(),
            Addr::Name(name) => {
                Addr::host_and_port(name)?;
                let text = "a host name, where an address is needed";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(unix.into())
    }

    /// As the kernel tells it.
    pub(super) fn from_any(addr: SocketAddrAny) -> io::Result<Addr> {
        if addr.address_family() != AddressFamily::UNIX {
            return Ok(Addr::Ip(SocketAddr::try_from(addr)?));
        }
        let name = unix_name(&addr);
        Ok(match name.split_first() {
            None | Some((0, [])) => Addr::Unnamed,
            Some((0, name)) => Addr::Abstract(name.to_vec()),
            Some(_) => {
                let path = name.split(|&byte| byte == 0).next().unwrap_or_default();
                Addr::Unix(PathBuf::from(OsString::from_vec(path.to_vec())))
            }
        })
    }
}

/// `127.0.0.1:80`, `[::1]:80`, `example.org:80`, `/run/server.sock`, `@server`, `(unnamed)`.
impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::Ip(addr) => addr.fmt(f),
            Addr::Name(name) => f.write_str(name),
            Addr::Unix(path) => path.display().fmt(f),
            Addr::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
            Addr::Unnamed => f.write_str("(unnamed)"),
        }
    }
}

impl FromStr for Addr {
    type Err = io::Error;

    /// As `Addr::from`, and an error of the kind `InvalidInput` if the text is neither an address
    /// nor `host:port`.
    fn from_str(text: &str) -> io::Result<Addr> {
        let addr = Addr::from(text);
        if let Addr::Name(name) = &addr {
            Addr::host_and_port(name)?;
        }
        Ok(addr)
    }
}

/// A text with a slash is a path, one with `@` at its start an abstract name, and one that is no IP
/// address with its port is a host name with its port.
impl From<&str> for Addr {
    fn from(text: &str) -> Addr {
        if let Ok(ip) = text.parse() {
            Addr::Ip(ip)
        } else if let Some(name) = text.strip_prefix('@') {
            Addr::Abstract(name.into())
        } else if text.contains('/') {
            Addr::Unix(text.into())
        } else {
            Addr::Name(text.to_owned())
        }
    }
}

impl From<String> for Addr {
    fn from(text: String) -> Addr {
        text.as_str().into()
    }
}

impl From<&String> for Addr {
    fn from(text: &String) -> Addr {
        text.as_str().into()
    }
}

impl From<&Addr> for Addr {
    fn from(addr: &Addr) -> Addr {
        addr.clone()
    }
}

impl From<&Path> for Addr {
    fn from(path: &Path) -> Addr {
        Addr::Unix(path.to_owned())
    }
}

impl From<&PathBuf> for Addr {
    fn from(path: &PathBuf) -> Addr {
        Addr::Unix(path.clone())
    }
}

impl From<PathBuf> for Addr {
    fn from(path: PathBuf) -> Addr {
        Addr::Unix(path)
    }
}

/// Each converts to what std makes of it.
macro_rules! from_ip {
    ($($from:ty),*) => {
        $(
            impl From<$from> for Addr {
                fn from(addr: $from) -> Addr {
                    Addr::Ip(addr.into())
                }
            }
        )*
    };
}

from_ip!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    ([u8; 4], u16),
    ([u16; 8], u16)
);

impl PartialEq<SocketAddr> for Addr {
    fn eq(&self, other: &SocketAddr) -> bool {
        self.ip() == Some(*other)
    }
}

/// For std's own sockets. A name is resolved by the calling thread, which waits for it.
impl ToSocketAddrs for Addr {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        match self {
            Addr::Ip(addr) => Ok(vec![*addr].into_iter()),
            Addr::Name(name) => name.to_socket_addrs(),
            Addr::Unix(_) | Addr::Abstract(_) | Addr::Unnamed => {
                let text = format!("{self}: not an IP address");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

/// Which process is at the other end of a Unix socket, as the kernel noted it when that connected or
/// began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The number of the process, which may be another's by now; 0 for one that this process cannot
    /// see, outside of a container.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// What to listen on or to bind: an [`Addr`] or anything that converts into one, or a socket that
/// was made elsewhere, with any options and by any means. Whether such a socket blocks is changed, for
/// all processes that have it; when its listener is closed, the connections that wait are accepted.
///
/// ```
/// use mely::net::{Acceptors, Endpoint};
/// use mely::{Color, Handler, Runtime};
/// static ACCEPT: Handler = Handler::new("accept");
/// let made_elsewhere = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let addr = made_elsewhere.local_addr()?;
/// let listening = Runtime::builder().build()?.run_until(move |cx, finish| {
///     let on_accept = || ACCEPT.on_each(Color::from(1), |_cx, connection| drop(connection));
///     let private = Endpoint::from("@mely-example").mode(0o600);
///     let local = cx.listen(private, Acceptors::PerCore, on_accept());
///     let listener = cx.listen(made_elsewhere, Acceptors::PerCore, on_accept());
///     finish.finish(local.and(listener).map(|listener| listener.local_addr()));
/// })?;
/// assert_eq!(listening?, addr);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) what: What,
    pub(crate) mode: Option<u32>,
}

/// Of an [`Endpoint`].
#[derive(Debug)]
pub(crate) enum What {
    Addr(Addr),
    Socket(OwnedFd),
}

impl Endpoint {
    /// Whether it is to be bound to an IP address.
    pub(crate) fn is_ip(&self) -> bool {
        matches!(self.what, What::Addr(Addr::Ip(_)))
    }

    /// Sets the permissions of the file that a Unix socket becomes, of which the process's umask is
    /// taken off, as of any file. Nobody can connect before they hold. Other endpoints have none,
    /// and are as they are.
    pub fn mode(self, mode: u32) -> Endpoint {
        Endpoint {
            mode: Some(mode),
            ..self
        }
    }
}

impl<A: Into<Addr>> From<A> for Endpoint {
    fn from(addr: A) -> Endpoint {
        Endpoint {
            what: What::Addr(addr.into()),
            mode: None,
        }
    }
}

/// Each is a socket of the process's.
macro_rules! from_socket {
    ($($from:ty),*) => {
        $(
            impl From<$from> for Endpoint {
                fn from(socket: $from) -> Endpoint {
                    Endpoint {
                        what: What::Socket(socket.into()),
                        mode: None,
                    }
                }
            }
        )*
    };
}

from_socket!(
    OwnedFd,
    std::net::TcpListener,
    std::net::UdpSocket,
    std::os::unix::net::UnixListener,
    std::os::unix::net::UnixDatagram
);
