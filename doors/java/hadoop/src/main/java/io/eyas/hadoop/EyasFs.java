package io.eyas.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;

/**
 * The same files for programs that use {@link org.apache.hadoop.fs.FileContext}: set {@code
 * fs.AbstractFileSystem.eyas.impl} to the name of this class.
 */
public final class EyasFs extends DelegateToFileSystem {
    /** Connects to the cluster that a URI names. Hadoop calls this. */
    public EyasFs(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(uri, new EyasFileSystem(), configuration, EyasFileSystem.SCHEME, false);
    }

    /** There is no port. */
    @Override
    public int getUriDefaultPort() {
        return -1;
    }
}
