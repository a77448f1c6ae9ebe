package io.eyas;

import static io.eyas.Texts.utf8;

import java.io.IOException;
import java.nio.file.attribute.UserPrincipalNotFoundException;

/** Names of users and groups for the ids in {@link FileInfo}, as this machine has them. */
public final class UserNames {
    private UserNames() {}

    /** The name of a user; the number if this machine does not know the user. */
    public static String user(int uid) {
        return name(uid, false);
    }

    /** The name of a group; the number if this machine does not know the group. */
    public static String group(int gid) {
        return name(gid, true);
    }

    /**
     * The id of a user.
     *
     * @throws UserPrincipalNotFoundException if the name is no number, and this machine does not
     *     know the user
     */
    public static int uid(String name) throws IOException {
        return id(name, false);
    }

    /**
     * The id of a group.
     *
     * @throws UserPrincipalNotFoundException if the name is no number, and this machine does not
     *     know the group
     */
    public static int gid(String name) throws IOException {
        return id(name, true);
    }

    private static String name(int id, boolean isGroup) {
        Native.load();
        byte[] name = Native.nameOf(id, isGroup);
        return name == null ? Integer.toUnsignedString(id) : Texts.text(name);
    }

    private static int id(String name, boolean isGroup) throws IOException {
        Native.load();
        long id = Native.idOf(utf8(name), isGroup);
        if (id >= 0) {
            return (int) id;
        }
        try {
            return Integer.parseUnsignedInt(name);
        } catch (NumberFormatException unknown) {
            throw new UserPrincipalNotFoundException(name);
        }
    }
}
