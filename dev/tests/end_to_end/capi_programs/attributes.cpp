/* Links, owners, permissions, named attributes and quotas in C++. */

#include <eyas.hpp>

#include <iostream>

int main()
{
    eyas::client client;
    client.make_folder("/limited");
    client.set_quota("/limited", 1000);
    client.make_symbolic_link("/limited/link", "target");
    client.set_mode("/limited/link", 0700);
    client.set_owner("/limited/link", 7, 8);
    client.set_modified("/limited/link", 9);
    const eyas_file_info info = client.stat("/limited/link");
    const eyas_quota quota = client.quota("/limited");
    std::cout << client.read_symbolic_link("/limited/link") << ' ' << std::oct << info.mode
              << std::dec << ' ' << info.uid << ' ' << info.gid << ' ' << info.modified_ns << ' '
              << quota.bytes << ' ' << (quota.files == EYAS_NO_LIMIT) << ' ' << quota.used_files
              << '\n';
    client.set_attribute("/limited", "colour", "red");
    client.set_attribute("/limited", "size", "");
    client.remove_attribute("/limited", "size");
    for (const auto &[name, value] : client.attributes("/limited"))
        std::cout << name << '=' << value << ' ' << *client.attribute("/limited", name) << ' '
                  << client.attribute("/limited", "size").has_value() << '\n';
    try {
        client.set_quota("/none", 1);
    } catch (const eyas::error &error) {
        std::cout << eyas_status_name(error.status()) << '\n';
    }
}
