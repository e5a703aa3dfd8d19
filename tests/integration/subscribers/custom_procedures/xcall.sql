-- XCALL: every old value, every new value; what was and what is go into a history, beside the change.
create table dbo.part_xcall (id int not null primary key, name nvarchar(40) not null, price decimal(10, 2) null)
create table dbo.part_xcall_history (
    seq int identity primary key, operation char(1), id int, old_price decimal(10, 2), price decimal(10, 2)
)
GO
create procedure dbo.part_changed
    @old_id int, @old_name nvarchar(40), @old_price decimal(10, 2), @id int, @name nvarchar(40), @price decimal(10, 2)
as
set nocount on
insert dbo.part_xcall_history (operation, id, old_price, price) values ('U', @old_id, @old_price, @price)
update dbo.part_xcall set id = @id, name = @name, price = @price where id = @old_id
if @@rowcount = 0 exec sp_MSreplraiserror @errorid = 20598, @param1 = N'part_xcall', @param2 = @old_name, @param3 = 13233
select count(*) as [rows] from dbo.part_xcall -- somebody's debugging, still there
GO -- the deletes
create procedure dbo.part_gone @old_id int, @old_name nvarchar(40), @old_price decimal(10, 2)
as
insert dbo.part_xcall_history (operation, id, old_price) values ('D', @old_id, @old_price)
delete dbo.part_xcall where id = @old_id and name = @old_name
if @@rowcount = 0 raiserror ('the part %d was changed here', 16, 1, @old_id)
GO
