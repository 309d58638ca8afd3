//! A proxy between a server and its database that can stop forwarding.

use std::{future::pending, path::PathBuf, pin::pin};

use sqlx::postgres::PgConnectOptions;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use uuid::Uuid;

/// A proxy to the test's database. Silent, it behaves like a network whose far end is gone: it
/// accepts connections, but forwards nothing and closes nothing. Existing connections stay that way
/// for ever; new ones after [`Self::switch`] reach the database again.
pub struct Proxy {
    folder: PathBuf,
    port: u16,
    /// Odd: silent. A connection keeps the state that it began with.
    epoch: watch::Sender<u64>,
    accepting: JoinHandle<()>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Proxy {
    pub fn start(options: &PgConnectOptions) -> Self {
        // A socket's path may have 107 bytes.
        let folder = std::env::temp_dir().join(Uuid::now_v7().simple().to_string());
        std::fs::create_dir(&folder).unwrap();
        let port = options.get_port();
        let listener = UnixListener::bind(folder.join(format!(".s.PGSQL.{port}"))).unwrap();
        let (epoch, _) = watch::channel(0);
        let accepting = tokio::spawn(accept(listener, options.clone(), epoch.clone()));
        Self {
            folder,
            port,
            epoch,
            accepting,
        }
    }

    /// The database through this proxy.
    pub fn over(&self, options: PgConnectOptions) -> PgConnectOptions {
        assert_eq!(options.get_port(), self.port);
        options.socket(&self.folder)
    }

    /// From now on nothing is forwarded.
    pub fn silence(&self) {
        self.epoch.send_modify(|epoch| *epoch |= 1);
    }

    /// New connections reach the database again; existing ones stay silent.
    pub fn switch(&self) {
        self.silence();
        self.epoch.send_modify(|epoch| *epoch += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn accept(listener: UnixListener, options: PgConnectOptions, epoch: watch::Sender<u64>) {
    // Ended together with this.
    let mut connections = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let begun = *epoch.borrow();
        let (mut epoch, options) = (epoch.subscribe(), options.clone());
        connections.spawn(async move {
            let mut through = pin!(async {
                if begun.is_multiple_of(2) {
                    pass(near, &options).await;
                } else {
                    // Held open.
                    let _near = near;
                    pending::<()>().await;
                }
            });
            let silenced = async move { epoch.wait_for(|now| *now != begun).await.map(drop) };
            tokio::select! {
                () = &mut through => return,
                _ = silenced => {}
            }
            pending::<()>().await;
        });
    }
}

async fn pass(mut near: UnixStream, options: &PgConnectOptions) {
    let port = options.get_port();
    let mut far: Box<dyn Stream> = match options.get_socket() {
        Some(folder) => {
            let path = folder.join(format!(".s.PGSQL.{port}"));
            Box::new(UnixStream::connect(path).await.unwrap())
        }
        None => Box::new(
            TcpStream::connect((options.get_host(), port))
                .await
                .unwrap(),
        ),
    };
    let _ = copy_bidirectional(&mut near, &mut far).await;
}
